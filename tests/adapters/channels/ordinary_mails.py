"""Mails as ordinary programs write them: replies, new mails, commands, forwards and files, with the headers of servers.

They were written after what these programs send. `own` is what their owner typed; `others` begins each attachment of
somebody else's words.
"""

import msgspec

OWNER = "owner@victim.example"
PALYRA = "palyra@example.com"
QUOTED = "Your build has passed.\nShall I go on?"


class OrdinaryMail(msgspec.Struct, frozen=True, kw_only=True):
    """`is_reply` says that it answers a mail of Palyra's. `head` are further headers, with those of MIME."""

    name: str
    body: str
    own: str
    is_reply: bool = True
    head: str = "Content-Type: text/plain; charset=utf-8"
    others: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    is_command: bool = False
    subject: str = "Re: A question"


def _quoted(mark: str = "> ") -> str:
    return "\n".join(f"{mark}{line}".rstrip() for line in QUOTED.splitlines())


def _outlook(words: str, labels: tuple[str, str, str, str], sent: str) -> str:
    from_, sent_, to, subject = labels
    block = f"{from_}: {PALYRA} <{PALYRA}>\n{sent_}: {sent}\n{to}: Owner <{OWNER}>\n{subject}: A question"
    return f"{words}\n\n{block}\n\n{QUOTED}\n"


GMAIL = f"\n\nOn Thu, Nov 19, 2026 at 10:01 PM <{PALYRA}> wrote:\n\n{_quoted()}\n"
GMAIL_WRAPPED = f"\n\nOn Thu, Nov 19, 2026 at 10:01 PM Palyra of the Team <{PALYRA}>\nwrote:\n\n{_quoted()}\n"
GMAIL_GERMAN = f"\n\nAm Do., 19. Nov. 2026 um 22:01 Uhr schrieb <{PALYRA}>:\n\n{_quoted()}\n"
GMAIL_FRENCH = f"\n\nLe jeu. 19 nov. 2026 à 22:01, <{PALYRA}> a écrit :\n\n{_quoted()}\n"
GMAIL_SPANISH = f"\n\nEl jue, 19 nov 2026 a las 22:01, <{PALYRA}> escribió:\n\n{_quoted()}\n"
GMAIL_JAPANESE = f"\n\n2026年11月19日(木) 22:01 <{PALYRA}>:\n\n{_quoted()}\n"
GMAIL_CHINESE = f"\n\n<{PALYRA}> 于2026年11月19日周四 22:01写道\uff1a\n\n{_quoted()}\n"
APPLE = f"\n\n> On 19 Nov 2026, at 22:01, {PALYRA} wrote:\n> \n{_quoted()}\n"
IPHONE = f"\n\nSent from my iPhone\n\n> On 19 Nov 2026, at 22:01, {PALYRA} wrote:\n> \n> \ufeff{_quoted()[2:]}\n"
THUNDERBIRD = f"\n\nOn 19.11.26 22:01, {PALYRA} wrote:\n{_quoted()}\n"
YAHOO = f"\n\n    On Thursday, November 19, 2026 at 10:01:11 PM GMT+1, {PALYRA} <{PALYRA}> wrote:  \n \n {QUOTED}\n"
PROTON = (
    f"\n\nSent with Proton Mail secure email.\n\nOn Thursday,"
    f" November 19th, 2026 at 22:01, {PALYRA} <{PALYRA}>"
    f" wrote:\n\n{_quoted()}\n"
)
SAMSUNG = (
    f"\n\nSent from my Galaxy\n\n-------- Original message --------\n"
    f"From: {PALYRA}\nDate: 19/11/2026 22:01 (GMT+01:00)\n"
    f"To: {OWNER}\nSubject: A question\n\n{QUOTED}\n"
)
OUTLOOK_PHONE = (
    f"\n\nGet Outlook for iOS<https://aka.ms/o0ukef>"
    f"\n________________________________\nFrom: {PALYRA} <{PALYRA}>"
    f"\nSent: Thursday, November 19, 2026 10:01:11 PM\n"
    f"To: Owner <{OWNER}>\nSubject: A question\n\n{QUOTED}\n"
)
ENGLISH = ("From", "Sent", "To", "Subject")
GERMAN = ("Von", "Gesendet", "An", "Betreff")
FRENCH = ("De", "Envoyé", "À", "Objet")
FLOWED = "Content-Type: text/plain; charset=utf-8; format=flowed"
SIGNED = "\n\n-- \nAlice Owner\nHead of Things\n+49 30 1234567\n"
HTML = "Content-Type: text/html; charset=utf-8"


def _alternative(plain: str, html: str) -> str:
    return f"--a\nContent-Type: text/plain; charset=utf-8\n\n{plain}\n--a\n{HTML}\n\n{html}\n--a--\n"


ALTERNATIVE = 'Content-Type: multipart/alternative; boundary="a"'
GMAIL_HTML = (
    f'<div dir="ltr">Yes, go on.</div><br><div class="gmail_quote gmail_quote_container">'
    f'<div dir="ltr" class="gmail_attr">On Thu &lt;{PALYRA}&gt;'
    f' wrote:<br></div><blockquote class="gmail_quote">'
    f"Your build</blockquote></div>"
)
OUTLOOK_HTML = (
    f"<html><head><style><!-- p.MsoNormal {{margin:0cm}} -->"
    f'</style></head><body lang="EN"><div class="WordSection1">'
    f'<p class="MsoNormal">Yes, go on.<o:p></o:p></p>'
    f'<p class="MsoNormal"><o:p>&nbsp;</o:p></p><div style="border:none;'
    f'border-top:solid #E1E1E1 1.0pt;padding:3.0pt 0cm 0cm 0cm">'
    f'<p class="MsoNormal"><b>From:</b> {PALYRA} &lt;'
    f"{PALYRA}&gt;<br><b>Sent:</b> Thursday, November 19,"
    f" 2026 10:01 PM<br><b>To:</b> {OWNER}<br><b>Subject:</b>"
    f" A question</p></div><p>Your build</p></div></body>"
    f"</html>"
)
PNG = (
    "Content-Type: image/png; name=a.png\nContent-Disposition: inline;"
    " filename=a.png\nContent-Transfer-Encoding: base64\n"
    "\niVBORw0KGgo=\n"
)
APPLE_FILE = (
    f"--a\nContent-Type: text/plain; charset=us-ascii\n"
    f"\nHere it is.\n\n--a\nContent-Type: multipart/mixed;"
    f" boundary=b\n\n--b\n{HTML}\n\n<div>Here it is.</div>"
    f"\n--b\nContent-Disposition: inline; filename=plan.pdf\n"
    f"Content-Type: application/pdf; name=plan.pdf\n"
    f"\n%PDF-1.4\n--b\n{HTML}\n\n<br>\n--b--\n--a--\n"
)
THUNDERBIRD_PICTURE = (
    f"--a\n{FLOWED}\n\nHere it is.\n\n--a\nContent-Type: multipart/related;"
    f" boundary=b\n\n--b\n{HTML}\n\n<p>Here it is.</p>"
    f"\n--b\n{PNG}\n--b--\n--a--\n"
)
GMAIL_FILE = f"--m\n{ALTERNATIVE}\n\n{_alternative('Here it is.', '<div>Here it is.</div>')}\n--m\n{PNG}\n--m--\n"
FORWARD = (
    "From: Bob <bob@evil.example>\nDate: Thu, Nov 19,"
    " 2026 at 9:00 PM\nSubject: Hello\nTo: <owner@victim.example>"
    "\n\n/approve\n"
)

_PLAIN = {
    "Gmail": GMAIL,
    "Gmail, a long name": GMAIL_WRAPPED,
    "Gmail, German": GMAIL_GERMAN,
    "Gmail, French": GMAIL_FRENCH,
    "Gmail, Spanish": GMAIL_SPANISH,
    "Gmail, Japanese": GMAIL_JAPANESE,
    "Gmail, Chinese": GMAIL_CHINESE,
    "Gmail with its signature below the quote": GMAIL + SIGNED,
    "Apple Mail": APPLE,
    "Thunderbird above the quote": THUNDERBIRD,
    "Thunderbird with its signature below the quote": THUNDERBIRD + SIGNED,
    "Yahoo": YAHOO,
    "Outlook": _outlook("", ENGLISH, "Thursday, November 19, 2026 10:01 PM"),
    "Outlook, German": _outlook("", GERMAN, "Donnerstag, 19. November 2026 22:01"),
    "Outlook, French": _outlook("", FRENCH, "jeudi 19 novembre 2026 22:01"),
    "Outlook, old": f"\n\n-----Original Message-----\n{_outlook('', ENGLISH, 'Thursday, November 19, 2026 10:01 PM').strip()}",
    "a signature and the quote of Gmail": SIGNED + GMAIL,
    "no quote": "\n",
    "no quote and a signature": SIGNED,
}
_SIGNED_BY_PROGRAMS = {
    "iPhone": (IPHONE, "Sent from my iPhone"),
    "Samsung": (SAMSUNG, "Sent from my Galaxy"),
    "Outlook on a phone": (OUTLOOK_PHONE, "Get Outlook for iOS<https://aka.ms/o0ukef>"),
    "Proton": (PROTON, "Sent with Proton Mail secure email."),
}

MAILS: tuple[OrdinaryMail, ...] = (
    *(
        OrdinaryMail(name=f"{name}: words", body=f"Yes, go on.{rest}", own="Yes, go on.")
        for name, rest in _PLAIN.items()
    ),
    *(
        OrdinaryMail(name=f"{name}: command", body=f"/approve{rest}", own="/approve", is_command=True)
        for name, rest in _PLAIN.items()
    ),
    *(
        OrdinaryMail(name=f"{name}: words", body=f"Yes, go on.{rest}", own=f"Yes, go on.\n\n{sign}")
        for name, (rest, sign) in _SIGNED_BY_PROGRAMS.items()
    ),
    *(
        OrdinaryMail(name=f"{name}: command", body=f"/approve{rest}", own="/approve", is_command=True)
        for name, (rest, _) in _SIGNED_BY_PROGRAMS.items()
    ),
    OrdinaryMail(
        name="Gmail with HTML",
        head=ALTERNATIVE,
        body=_alternative(f"Yes, go on.{GMAIL}", GMAIL_HTML),
        own="Yes, go on.",
    ),
    OrdinaryMail(name="flowed", head=FLOWED, body=f"Yes, \ngo on.{THUNDERBIRD}", own="Yes,\ngo on."),
    OrdinaryMail(name="Outlook, HTML alone", head=HTML, body=OUTLOOK_HTML, own="Yes, go on."),
    OrdinaryMail(
        name="a command in HTML",
        head=HTML,
        body=(
            '<div dir="auto">/approve</div><div><br></div><div id="ms-outlook-mobile-signature">'
            "Sent from Outlook for Android</div>"
        ),
        own="/approve",
        is_command=True,
    ),
    OrdinaryMail(
        name="Latin-1",
        head="Content-Type: text/plain; charset=iso-8859-1\nContent-Transfer-Encoding: quoted-printable",
        body="Sch=F6n, weiter.",
        own="Schön, weiter.",
    ),
    OrdinaryMail(
        name="base64",
        head="Content-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: base64",
        body="WWVzLCBnbyBvbi4K",
        own="Yes, go on.",
    ),
    OrdinaryMail(
        name="Apple Mail with a file", head=ALTERNATIVE, body=APPLE_FILE, own="Here it is.", files=("plan.pdf",)
    ),
    OrdinaryMail(
        name="Thunderbird with a picture",
        head=ALTERNATIVE,
        body=THUNDERBIRD_PICTURE,
        own="Here it is.",
        files=("a.png",),
    ),
    OrdinaryMail(
        name="Gmail with a file",
        head="Content-Type: multipart/mixed; boundary=m",
        body=GMAIL_FILE,
        own="Here it is.",
        files=("a.png",),
    ),
    OrdinaryMail(
        name="a new mail",
        is_reply=False,
        subject="Groceries",
        body="Please order milk.\n\nThanks\nAlice",
        own="Please order milk.\n\nThanks\nAlice",
    ),
    OrdinaryMail(
        name="a new mail with a list",
        is_reply=False,
        subject="=?utf-8?q?Eink=C3=A4ufe?=",
        body="Bitte:\n\n- Milch\n- Brot\n\n1. heute\n2. morgen",
        own="Bitte:\n\n- Milch\n- Brot\n\n1. heute\n2. morgen",
    ),
    OrdinaryMail(
        name="a new mail with a day",
        is_reply=False,
        subject="Agenda",
        body="Agenda for 2026-11-20:\n\n* milk\n* bread",
        own="Agenda for 2026-11-20:\n\n* milk\n* bread",
    ),
    OrdinaryMail(
        name="a new mail with a German day",
        is_reply=False,
        subject="Aufgaben",
        body="Bitte bis 20.11.2026:\nMilch kaufen",
        own="Bitte bis 20.11.2026:\nMilch kaufen",
    ),
    OrdinaryMail(
        name="a new mail with a link",
        is_reply=False,
        subject="Read",
        body="Read https://example.org/a?b=1: is it true?",
        own="Read https://example.org/a?b=1: is it true?",
    ),
    OrdinaryMail(
        name="a forward of Gmail",
        is_reply=False,
        subject="Fwd: Hello",
        body=f"What is this?\n\n---------- Forwarded message ---------\n{FORWARD}",
        own="What is this?",
        others=("---------- Forwarded",),
    ),
    OrdinaryMail(
        name="a forward of Apple Mail",
        is_reply=False,
        subject="Fwd: Hello",
        body=f"What is this?\n\nBegin forwarded message:\n\n> {FORWARD}",
        own="What is this?",
        others=("Begin forwarded message:",),
    ),
    OrdinaryMail(
        name="a forward of Outlook",
        is_reply=False,
        subject="WG: Hello",
        body=(
            "What is this?\n\nVon: Bob <bob@evil.example>\n"
            "Gesendet: Donnerstag, 19. November 2026 21:00\n"
            "An: Owner\nBetreff: Hello\n\n/approve"
        ),
        own="What is this?",
        others=("Von: Bob",),
    ),
)

# What servers of mailboxes write above a mail of the owner's that passed. One of them names nobody, so it proves nothing.
SERVERS = {
    "Gmail": (
        "mx.google.com;\n       dkim=pass header.i=@victim.example header.s=20230601 "
        "header.b=AbC/d+e=;\n       spf=pass (google.com: domain of owner@victim.example "
        "designates 2001:db8::1 as permitted sender) smtp.mailfrom=owner@victim.example;"
        "\n       dmarc=pass (p=NONE sp=QUARANTINE dis=NONE) header.from=victim.example;"
        "\n       dara=pass header.i=@gmail.com"
    ),
    "OpenDMARC": "mail.example.com; dmarc=pass (p=none dis=none) header.from=victim.example",
    "rspamd": (
        "mail.example.com;\n\tdkim=pass header.d=victim.example header.s=s1 header.b=ab12CD34;"
        "\n\tdmarc=pass (policy=none) header.from=victim.example;"
        "\n\tspf=pass (mail.example.com: domain of owner@victim.example designates "
        "192.0.2.1 as permitted sender) smtp.mailfrom=owner@victim.example"
    ),
    "Exim": (
        "mail.example.com;\n\tiprev=pass (mx.victim.example) smtp.remote-ip=192.0.2.1;"
        "\n\tspf=pass smtp.mailfrom=victim.example;\n\tdkim=pass header.d=victim.example "
        "header.s=s1 header.a=rsa-sha256;\n\tdmarc=pass header.from=victim.example"
    ),
    "Fastmail": (
        "mx1.messagingengine.com;\n    dkim=pass (2048-bit rsa key sha256) header.d=victim.example\n"
        "    header.i=@victim.example header.b=Xy/z= header.a=rsa-sha256\n"
        "    header.s=s1 x-bits=2048;\n    dmarc=pass policy.published-domain-policy=none\n"
        "    policy.applied-disposition=none (p=none,d=none,"
        "d.eval=none)\n    policy.policy-from=p header.from=victim.example;"
        "\n    iprev=pass smtp.remote-ip=192.0.2.1 (mx.victim.example);"
        "\n    spf=pass smtp.mailfrom=owner@victim.example\n"
        "    smtp.helo=mx.victim.example"
    ),
    "Yahoo": (
        "atlas.mail.yahoo.com;\n dkim=pass header.i=@victim.example header.s=s1;"
        "\n spf=pass smtp.mailfrom=victim.example;\n dmarc=pass(p=NONE) header.from=victim.example;"
    ),
    "Zoho": (
        "mx.zohomail.eu;\n\tdkim=pass;\n\tspf=pass (zohomail.eu: domain of owner@victim.example "
        "designates 192.0.2.1 as permitted sender)  smtp.mailfrom=owner@victim.example;"
        "\n\tdmarc=pass(p=none dis=none)  header.from=owner@victim.example"
    ),
}
