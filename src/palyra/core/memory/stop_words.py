"""Words that say nothing about a subject: they are in almost every text, and in almost every question."""

STOP_WORDS = frozenset(
    """
    a about above after again all also am an and any are as at be because been before being below between both but by
    can could did do does doing down during each few for from further get got had has have having he her here hers him
    his how i if in into is it its itself just like lot many me more most much my myself no nor not now of off oh on once
    one only or other our ours out over own really s same she should so some such t than that the their theirs them then
    there these they thing things this those through to too under until up us very was we were what when where which
    while who whom why will with would you your yours yeah yes ve re ll d m don didn doesn isn wasn
    """.split()
)
