"""English words so common that one of them in a text is hardly ever a slip of the keyboard.

They tell a wrong word ("their" for "there", "have" for "has") from a misspelt one ("thier"): function words, the
irregular forms of verbs and nouns, and words that are often mistaken for each other.
"""

from __future__ import annotations

_FUNCTION = """
a an the this that these those some any no every each either neither both all half such what which whose i me my
mine myself you your yours yourself yourselves he him his himself she her hers herself it its itself we us our
ours ourselves they them their theirs themselves one ones who whom whoever someone somebody something anyone
anybody anything everyone everybody everything nobody nothing none other others another am is are was were be
been being do does did done doing have has had having can could may might must shall should will would ought
cannot can't couldn't don't doesn't didn't won't wouldn't isn't aren't wasn't weren't haven't hasn't hadn't
shouldn't i'm i've i'd i'll you're you've you'd you'll he's he'd he'll she's she'd she'll it's it'd it'll we're
we've we'd we'll they're they've they'd they'll that's there's who's what's let's about above across after
against along among around as at before behind below beneath beside besides between beyond but by despite down
during except for from in inside into like near of off on onto out outside over past since through throughout
till to toward towards under until up upon with within without and or nor so yet because although though while
whereas if unless whether than then when where why how once not never ever always often sometimes seldom very
too quite rather just only also even still already again here there now today tomorrow yesterday much many more
most little less least few fewer several enough lot lots
"""

_IRREGULAR_VERBS = """
arise arose arisen awake awoke awoken bear bore borne beat beaten become became begin began begun bend bent bet
bind bound bite bit bitten bleed bled blow blew blown break broke broken breed bred bring brought build built
burn burnt buy bought catch caught choose chose chosen come came cost cut deal dealt dig dug draw drew drawn
dream dreamt drink drank drunk drive drove driven eat ate eaten fall fell fallen feed fed feel felt fight fought
find found flee fled fly flew flown forbid forbade forbidden forget forgot forgotten forgive forgave forgiven
freeze froze frozen get got gotten give gave given go goes went gone going grow grew grown hang hung hear heard
hide hid hidden hit hold held hurt keep kept know knew known lay laid lead led learn learnt leave left lend lent
let lie lay lain light lit lose lost make made mean meant meet met pay paid put quit read ride rode ridden ring
rang rung rise rose risen run ran say said see saw seen seek sought sell sold send sent set sew sewn shake shook
shaken shine shone shoot shot show shown shut sing sang sung sink sank sunk sit sat sleep slept slide slid speak
spoke spoken spend spent spread spring sprang sprung stand stood steal stole stolen stick stuck sting stung
strike struck swear swore sworn sweep swept swim swam swum swing swung take took taken teach taught tear tore
torn tell told think thought throw threw thrown understand understood wake woke woken wear wore worn win won
write wrote written
"""

_IRREGULAR_NOUNS = """
man men woman women child children person people foot feet tooth teeth goose geese mouse mice life lives wife
wives knife knives half halves leaf leaves self selves shelf shelves wolf wolves thief thieves loaf loaves
"""

_MISTAKEN = """
accept except advice advise affect effect altogether brake break breathe breath choose chose cloth clothe
clothes complement compliment council counsel desert dessert good better best bad worse worst far further hear
here hole whole know now known loose lose maybe may passed past peace piece plain plane practice practise
principal principle quiet quite right write sea see site sight stationary stationery weak week weather whether
well wear where would wood
"""

COMMON_WORDS = frozenset(f"{_FUNCTION}{_IRREGULAR_VERBS}{_IRREGULAR_NOUNS}{_MISTAKEN}".split())
"""In lower case, with straight apostrophes."""
