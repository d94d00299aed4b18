"""The sentences of made-up chats: how facts are said and asked for. Owns: words alone; bench._chats draws from them.

An entry is (said outright, "question of the other | short answer", questions asked later). `{me}` is who tells.
"""

NAMES = ("Hannah", "Omar", "Priya", "Lucas", "Greta", "Tobias", "Yuki", "Brandon", "Elif", "Marcus")
FRIENDS = ("Nora", "Pete", "Sofia", "Jamal", "Ingrid", "Felix", "Dana")
SETS = {
    "pet": ("a beagle", "a tabby kitten", "two budgies", "a rescue greyhound", "a grey rabbit"),
    "petname": ("Biscuit", "Pepper", "Ziggy", "Maple", "Comet"),
    "city": ("Lisbon", "Denver", "Osaka", "Leeds", "Montreal", "Cape Town"),
    "dish": ("mushroom lasagne", "lamb tagine", "veggie dumplings", "shrimp tacos", "pumpkin soup"),
    "sport": ("rock climbing", "swimming", "badminton", "rowing", "fencing"),
    "instrument": ("the cello", "the ukulele", "the drums", "the clarinet", "jazz piano"),
    "book": ("The Salt Road", "Winter Harbour", "A Map of Quiet", "The Glass Orchard"),
    "degree": ("marine biology", "graphic design", "nursing", "civil engineering", "social work"),
    "colour": ("teal", "burgundy", "mustard yellow", "lavender"),
    "art": ("a sunset over a lake", "a forest path", "two dancers", "a stormy sea"),
    "relative": ("grandma", "uncle", "older brother", "cousin", "dad"),
    "keepsake": ("a silver locket", "an old pocket watch", "a wool scarf", "a wooden chess set"),
    "allergy": ("peanuts", "shellfish", "pollen", "cat hair"),
    "film": ("a documentary on whales", "an old western", "a heist comedy", "a space epic"),
    "count": ("two", "three", "four", "five"),
    "years": ("two", "three", "five", "seven", "ten"),
    "when": ("last Saturday", "yesterday", "last week", "two days ago", "last Friday", "a couple of weeks back"),
    "next": ("next month", "this weekend", "in two weeks", "next Tuesday", "in the spring"),
}

FACTS = (
    (
        (
            "I finally brought home {pet}, we call it {petname}.",
            "There's a new member of the family: {pet}! Name's {petname}.",
        ),
        (
            "Do you have any animals at home? | Yep, {pet}! {petname} keeps me busy all day.",
            "Who's that in the picture? | That's {petname}, {pet} from the shelter.",
        ),
        ("What pet does {me} have?", "What is the name of {me}'s pet?", "Which animal did {me} adopt?"),
    ),
    (
        (
            "I grew up in {city} before we moved here, I still miss the food.",
            "My roots are in {city}, I moved {years} years ago.",
        ),
        ("Where are you from originally? | {city}! We left when I was little.",),
        ("Where did {me} move from?", "What is {me}'s home town?", "In which city was {me} raised?"),
    ),
    (
        (
            "I've been into {sport} lately, it clears my head after work.",
            "Signed up for {sport} lessons and I'm hooked.",
        ),
        (
            "What do you do to unwind? | {sport}, mostly. It's like therapy for me.",
            "Any new hobbies? | I picked up {sport} and go twice a week.",
        ),
        ("How does {me} destress?", "What hobby did {me} take up?", "What does {me} do to relax?"),
    ),
    (
        ("I'm learning {instrument}, my neighbours hate it haha.", "Started taking lessons on {instrument} this year."),
        ("Do you play any music? | I do, {instrument}, since I was a kid.",),
        ("What instrument does {me} play?", "Which musical instrument is {me} practising?"),
    ),
    (
        ("I just finished {book} and cried at the ending.", "I can't put down {book}, the writing is gorgeous."),
        ("Read anything good? | {book}! It really made me rethink things.",),
        ("What book did {me} read?", "Which novel moved {me}?", "What was {me} reading?"),
    ),
    (
        (
            "I decided to go back to school for {degree}.",
            "I'm thinking of a career in {degree}, I want to make a difference.",
        ),
        ("So what are you going to study? | {degree}. It feels right for me.",),
        ("What field would {me} be likely to pursue in education?", "What did {me} decide to study?"),
    ),
    (
        ("I painted {art} for the living room, mostly in {colour}.", "Here's my latest painting, {art}."),
        ("Did you make that yourself? | Yes, it's {art}, took me {count} evenings.",),
        ("What did {me} paint?", "What is the subject of {me}'s artwork?"),
    ),
    (
        (
            "My {relative} gave me {keepsake}, it means the world to me.",
            "I still wear {keepsake} from my {relative} every day.",
        ),
        ("Does that have a special meaning? | It's {keepsake}, a gift from my {relative}.",),
        ("What present did {me} get from family?", "What keepsake is important to {me}?", "Who gave {me} {keepsake}?"),
    ),
    (
        (
            "I can't eat out easily, I'm allergic to {allergy}.",
            "Found out I react badly to {allergy}, so that's off the menu.",
        ),
        ("Is there something you have to avoid? | {allergy}, sadly. I carry an EpiPen.",),
        ("What is {me} allergic to?", "What gives {me} an allergic reaction?"),
    ),
    (
        (
            "We cooked {dish} together and it came out great.",
            "My signature recipe is {dish}, everyone asks for seconds.",
        ),
        ("What did you make for dinner? | {dish}, with a recipe of my {relative}.",),
        ("What meal did {me} prepare?", "What is {me}'s best dish?"),
    ),
    (
        ("I have {count} kids and they're growing so fast.", "All {count} of my children got the flu, chaos here."),
        ("How big is your family? | {count} kids and a very patient partner.",),
        ("How many children does {me} have?",),
    ),
    (
        ("I've been married for {years} years now, time flies.", "We just celebrated {years} years of marriage."),
        ("How long have you two been together? | {years} years already!",),
        ("How long has {me} been married?", "How many years ago was {me}'s wedding?"),
    ),
    (
        ("I volunteer at the animal shelter on weekends.", "Helping out at the shelter has been so rewarding."),
        ("What do you do on weekends? | I give my time at the local food bank, it's humbling.",),
        ("What volunteer work does {me} do?", "How does {me} help the community?"),
    ),
    (
        (
            "Honestly, losing my job was scary but I'm starting my own bakery.",
            "I quit the bank to open a little flower shop.",
        ),
        ("What's next for you at work? | I'm opening my own studio, wish me luck.",),
        ("What business is {me} starting?", "What did {me} do after leaving the job?"),
    ),
    (
        ("My {relative} has always been my biggest supporter.", "When things got rough, {friend} was there for me."),
        ("Who do you lean on? | My {relative} and {friend}, they never let me down.",),
        ("Who supports {me} in hard times?", "Who is {me}'s source of strength?"),
    ),
    (
        ("My dream is to buy a cabin in the mountains one day.", "Someday I'd love to sail around the world."),
        ("What would you do with a million? | Build a house by the sea, no doubt.",),
        ("What is {me}'s dream?", "What would {me} like to do in the future?"),
    ),
    (
        (
            "We redecorated the bedroom in {colour}, my favourite.",
            "I bought a {colour} bike, that shade makes me happy.",
        ),
        ("Which shade should I get you? | {colour}, always.",),
        ("What is {me}'s favorite color?", "Which colour does {me} prefer?"),
    ),
    (
        ("We watched {film} and the kids loved it.", "I saw {film} at the cinema, worth every penny."),
        ("Seen anything good lately? | Yeah, {film}. I laughed so much.",),
        ("What movie did {me} watch?", "Which film did {me} enjoy?"),
    ),
    (
        ("The hike taught me to slow down and be grateful.", "That accident made me realise how short life is."),
        ("What did you take away from it? | That asking for help is not weakness.",),
        ("What lesson did {me} learn?", "What did {me} realize after the experience?"),
    ),
    (
        ("My car broke down again, the engine is done for.", "My laptop died and took my photos with it."),
        ("Why so gloomy? | My phone got stolen on the train.",),
        ("What went wrong for {me}?", "What problem did {me} face with belongings?"),
    ),
)

EVENTS = (
    (
        (
            "I ran a charity race for mental health {when}, so proud!",
            "{when} I did a 10k for the hospice, my legs still hurt.",
        ),
        ("What's new? | I took part in a fundraiser run {when}!",),
        ("When did {me} run a charity race?", "When was {me}'s fundraising run?"),
    ),
    (
        ("I went camping with the family {when}, we saw a meteor shower.", "We pitched our tent by the lake {when}."),
        (),
        ("When did {me} go camping?", "When was {me} sleeping in a tent?"),
    ),
    (
        ("I had a job interview at a design firm {when}.", "{when} I interviewed for that museum position."),
        ("How is the job hunt? | Had an interview {when}, fingers crossed.",),
        ("When did {me} have an interview?", "What date was {me}'s job interview?"),
    ),
    (
        ("We're flying to {city} {next}, can't wait!", "I booked tickets to {city} for {next}."),
        ("Any holiday plans? | {city}, {next}!",),
        ("When is {me} planning to travel?", "When will {me} go on vacation?"),
    ),
    (
        (
            "{when} I joined a support group and felt so seen.",
            "I went to a support group meeting {when}, it was powerful.",
        ),
        (),
        ("When did {me} attend the support group?",),
    ),
    (
        ("My {relative} passed away {when}, it's been tough.", "We lost my {relative} {when}, I'm still in shock."),
        (),
        ("When did {me}'s relative die?", "When did {me} lose a family member?"),
    ),
    (
        (
            "I gave a speech at the school {when}, my hands were shaking.",
            "{when} I spoke in front of the whole town hall.",
        ),
        ("How did the talk go? | It was {when}, and people stood up and clapped.",),
        ("When did {me} give a speech?", "When did {me} talk at an event?"),
    ),
    (
        ("We signed the papers for the new flat {when}!", "{when} we got the keys to our house."),
        (),
        ("When did {me} buy a home?", "When did {me} get the keys?"),
    ),
    (
        ("I sold my first painting at the market {when}.", "My pottery was shown at a gallery {when}, unreal."),
        (),
        ("When did {me} exhibit or sell artwork?", "When was {me}'s art shown?"),
    ),
    (
        ("I sprained my ankle {when} and can't train for a month.", "{when} I fell off my bike and broke my wrist."),
        ("Are you okay? | I hurt my back {when}, doctor says rest.",),
        ("When did {me} get hurt?", "When did {me} have an injury?"),
    ),
)

LISTS = {
    "activities": (
        (
            "Took the kids to the dinosaur museum, they were over the moon.",
            "We made clay pots together, so messy and fun.",
            "The little ones and I went swimming at the lake.",
            "Family movie night turned into a pillow fight.",
            "I taught my son how to bake bread.",
        ),
        ("What activities does {me} do with family?", "What has {me} done with the children?"),
    ),
    "places": (
        (
            "Just got back from {city}, the old town is magical.",
            "The beach near the lighthouse was perfect for a walk.",
            "We drove through the national park and saw elk.",
            "Spent a day in the botanical garden, so calm.",
        ),
        ("Which places has {me} visited?", "Where has {me} been on trips?"),
    ),
    "friends": (
        (
            "{friend} and I had coffee, first time in ages.",
            "I met {friend} at the climbing gym.",
            "{friend} threw me a surprise party!",
            "Had lunch with my old teacher, she remembers everything.",
        ),
        ("Who has {me} spent time with?", "Which friends did {me} meet?"),
    ),
    "worries": (
        (
            "Money has been tight since the rent went up.",
            "I barely sleep, the deadline keeps me awake.",
            "My confidence took a hit after that review.",
            "My mum's health is getting worse, I feel helpless.",
        ),
        ("What struggles has {me} gone through?", "What has been stressing {me}?"),
    ),
    "classes": (
        (
            "I signed up for a pottery class!",
            "Started an evening course in Italian.",
            "I'm taking a first aid workshop.",
            "Joined a creative writing group at the library.",
        ),
        ("What courses has {me} taken?", "What classes did {me} sign up for?"),
    ),
}

REACTIONS = (
    "Wow, that's amazing, {me}! How did it feel?",
    "That's wonderful! You should be proud.",
    "Oh no, sorry to hear that. I'm here for you.",
    "Sounds great, I'd love to try that too someday.",
    "Ha, that's so you, {me}!",
    "Nice! What made you decide that?",
    "That must have been special. Family is everything.",
    "Awesome! Do you have a photo?",
    "I get it. Change is hard but worth it.",
    "So cool! Keep me posted on how it goes.",
    "Thanks for sharing that with me, {me}. It takes courage.",
    "Love that for you!",
)
CHATTER = {
    "hello": (
        "Long time no talk! How have you been?",
        "What's up? Anything new?",
        "Good to see you! Life's been busy.",
        "Hope you're doing well!",
        "It's been a while, hasn't it?",
    ),
    "hello_back": (
        "Doing okay, thanks! Lots going on with work and family.",
        "Great to hear from you! Same old here.",
        "I've been good, just tired. You?",
        "So much happened, where do I start?",
    ),
    "opening": (
        "",
        "",
        "Guess what?",
        "By the way,",
        "Oh, and",
        "Honestly, things are good.",
        "You won't believe it.",
        "I've been meaning to tell you.",
        "So,",
    ),
    "filler": (
        "Taking time for yourself is so important these days.",
        "Nature always helps me feel calm and grateful.",
        "Totally agree, music brings people together.",
        "The kids are getting so big, it's crazy.",
        "I love how painting lets you express yourself.",
        "Work has been nonstop, I need a break.",
        "Do you have any plans for the weekend?",
        "We should catch up over dinner sometime.",
        "Reading before bed keeps me sane.",
        "Volunteering sounds so rewarding, good for you.",
        "I've been thinking about getting a pet someday.",
        "It's great to have people who support you.",
        "Camping trips are the best for making memories.",
        "My {relative} used to say that too.",
        "I remember when we went to {city} years ago, good times.",
        "What's your favorite thing about it?",
        "Yeah, running helps me clear my mind.",
        "How long have you been doing that?",
        "That's the dream, isn't it?",
        "Movies and popcorn, a perfect evening.",
        "I need to learn to cook something new.",
        "Life has its ups and downs, you know.",
        "Your art is so full of feeling.",
        "Speaking in public scares me to death.",
        "Moving house is stressful, take it slow.",
        "What kind of books do you like?",
        "I should call {friend} more often.",
        "Studying again at our age takes guts.",
        "Rest is part of training, don't forget.",
        "I hope your family is doing well.",
    ),
    "bye": ("Talk soon, take care!", "Gotta run, bye!", "Let's catch up again soon.", "See you, have a great week!"),
}
ECHOES = (
    "What did {me} say about {about}?",
    "What is it with {me}, {about}?",
    "How does {me} feel about {about}?",
    "Why did {me} mention {about}?",
)
ECHOES_WHEN = ("When did {me} talk of {about}?", "When was it that {me} had {about}?")
