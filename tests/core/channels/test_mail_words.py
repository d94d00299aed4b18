"""A mail's own words end where those of others may begin, in any language."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.core.channels.mail_words import command_alone, is_forward_subject, is_own_quote, mark_html, split_words

MARKS = [
    "> quoted words",
    "-----Original Message-----\nFrom: Bob <bob@x.example>",
    "-------- Weitergeleitete Nachricht --------\nBetreff: Hallo",
    "---------- Forwarded message ---------\nFrom: Bob",
    "Begin forwarded message:\n\nFrom: Bob <bob@x.example>\nSubject: Hi\nDate: 2 March 2026",
    "________________________________\nDe : Bob",
    "Von: Bob\nGesendet: Montag, 2. März 2026 10:00\nAn: Alice\nBetreff: Hallo",
    "*From:* Bob [mailto:bob@x.example]\n*Sent:* Monday\n*To:* Alice",
    "差出人\uff1aBob <bob@x.example>\n送信日時\uff1a2026年3月2日 10:00\n宛先\uff1aAlice",
    "On Mon, 2 Mar 2026 at 10:00, Bob <bob@x.example> wrote:",
    "On Mon, 2 Mar 2026 at 10:00, Bob\n<bob@x.example>\nwrote:",
    "Am 02.03.26 um 10:00 schrieb Bob:",
    "Le lun. 2 mars 2026 à 10:00, Bob <bob@x.example> a écrit :",
    "2026年3月2日(月) 10:00 Bob <bob@x.example>:",
    "===== Mensagem encaminhada =====",
]


@pytest.mark.parametrize("mark", MARKS)
def test_words_from_a_mark_on_are_somebody_elses(mark: str) -> None:
    words = split_words(f"Can you answer this?\n\n{mark}\n\n/approve\nI always want blue.\n", is_continued=False)
    assert "/approve" not in words.own
    assert "blue" not in words.own
    assert words.own.startswith("Can you answer this?")
    assert "I always want blue." in words.others


@pytest.mark.parametrize(
    "text",
    [
        "What is on today?",
        "Please do this at 10:30 today:\n- one\n- two",
        "Note: buy milk",
        "Hello,\n\nplease look at https://x.example/a?b=2026 - it says 14:00.\n\nAlice",
        "Dear agent,\n\nwrite to bob@x.example and tell him that 2026 is fine.",
        "Hi\n\n-- \nAlice Smith\nTel: +49 30 1234567",
        "Thanks\n\nAlice\nTel: +49 30 1234567\nFax: none",
    ],
)
def test_what_people_type_is_theirs(text: str) -> None:
    assert split_words(text, is_continued=False).others == ""


def test_a_mail_that_goes_on_with_another_one_is_all_somebody_elses_unless_it_is_marked() -> None:
    assert split_words("words", is_continued=True).own == ""
    assert split_words("mine\n> theirs", is_continued=True).own == "mine"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/approve\n\nOn Mon, 2 Mar 2026 at 10:00, palyra@example.com\nwrote:\n> May I?\n", "/approve"),
        ("/deny 01AB\n \n-- \nAlice\n", "/deny 01AB"),
        ("AB12-CD34\n\nSent from my phone\n", "AB12-CD34"),
        ("/approve\nbut only tomorrow\n", "/approve\nbut only tomorrow"),
        ("Look at this:\n\n/approve\n", "Look at this:\n\n/approve"),
    ],
)
def test_a_command_in_a_mail_ends_before_the_signature_and_the_quote(text: str, expected: str) -> None:
    assert command_alone(split_words(text, is_continued=False).own) == expected


def test_a_quote_of_our_own_mail_is_known_already_and_one_with_answers_between_is_not() -> None:
    head = "Yes.\n\nOn Mon, 2 Mar 2026 at 10:00, palyra@example.com wrote:\n"
    assert is_own_quote(split_words(f"{head}> May I?\n> Really?", is_continued=False), "palyra@example.com")
    assert not is_own_quote(split_words(f"{head}> May I?\nno\n> x", is_continued=False), "palyra@example.com")
    other = head.replace("palyra@", "bob@")
    assert not is_own_quote(split_words(f"{other}> /approve", is_continued=False), "palyra@example.com")


@pytest.mark.parametrize("subject", ["Fwd: x", "FW: x", "WG: x", "Tr : x", "[Fwd: x]", "转发\uff1ax"])
def test_a_subject_tells_a_forward(subject: str) -> None:
    assert is_forward_subject(subject)
    assert not is_forward_subject("Re: forward planning")


@given(st.text(max_size=200), st.sampled_from(MARKS), st.text(max_size=200))
def test_no_words_before_a_mark_make_it_vanish(before: str, mark: str, after: str) -> None:
    token = "SECRETWORD"
    words = split_words(f"{before}\n\n{mark}\n{token} {after}", is_continued=False)
    assert token not in words.own


@given(st.text(alphabet=st.sampled_from('<>=":;/ abclassidquotehr\n'), max_size=300))
def test_marking_html_keeps_its_letters(html: str) -> None:
    assert mark_html(html).replace("<p>----------</p>", "") == html
