"""`subscribePattern` means what it means in Java: Java itself is asked, and time is measured."""

import time

import pytest
from pyspark.errors import IllegalArgumentException

from streamlog.arrow.java_pattern import JavaPattern, matches_topic
from streamlog.errors import InvalidOptionError

NAMES = [
    *(
        "a",
        "b",
        "A",
        "abC",
        "ABC",
        "abc",
        "aab",
        "aaaab",
        "orders",
        "Orders",
        "re-orders",
        "c",
        "d",
    ),
    *("orders.eu", "orders_eu", "orders-2", "a.b", "axb", "a-b", "0", "42", "_x", ".hidden", "z"),
    *(
        "__consumer",
        "internal-a",
        "topic1",
        "topic12",
        "Topic-9",
        "x" * 40,
        "m",
        "M",
        "-",
        "_",
        ".",
    ),
]


def of_text(patterns):
    return patterns.split()


# Each is asked of Java as well, with every name of the list.
PATTERNS = of_text(r"""
    orders orders.* orders\..* [a-z]+ ab(?i)C (?i)abc (?i:a)bc \p{Lower}+ \p{Upper}\p{Lower}*
    \P{Lower}+ \p{Alnum}+ \pL+ \p{L}\p{Nd} \p{IsLatin}+ \p{javaLowerCase}+ \p{IsAlphabetic}+
    \p{Punct}.* \p{gc=Lu}.* (?<n>ab)c (a|b)+c? \Qa.b\E \Qa.b \Qorders\E.* abc\z ^abc$ \Aabc\Z
    [a-z&&[^c]]+ [a-z&&[def]]+ [^a&&[ab]] [a-d[m-p]]+ [a-c&&b-d] [abc&&b] [^abc]+ [^a-z]+ []a]+
    [a\]]+ [a^]+ [-a]+ [a-]+ [a&b]+ [\w&&\D]+ [\d.]+ \w+ \W+ \d{2} \D+ \S+ \s* \h a\.b a\x2eb
    a\u002Eb a\x{2e}b a\056b a{2}b a{1,}b a{1,3}b a+?b (?:a|b){2} a??b x{40} (?i)[^a]bc
    (?i)[a-c]+ (?i)\p{Lower}+ (?i)\P{Lower}+ (?i)[^\p{Upper}]+ ((?i)a)bc (?i)a(?-i)bc a(?i)b|ABC
    (?s).* (?m)^a$ (?u)a \babc\b orders\b.* .*\Borders (?!__).* ^(?!__|internal-).*
    (?!orders$).* (?=.*-).* (?!_)(?!\.).* (?=o)(?!orders$).* (?:)abc abc| |abc () [a-z]*.eu a}
    a] \- \. \_ (?<name1>o).* topic[0-9]{1,2} (?i)TOPIC-?\d+ ^*a [a[b]] [[a]b]
    [a-z&&[^m-p]&&[^x]]+ [a-z&&b-y&&[^c]] [&&a] [a&&] \X+ abc\R? \cA
""")

# Java takes these, and they are refused for the time they could take, or for what they need.
BACKTRACKING = of_text(r"""
    a*+b (?>a+)b (a)\1 (?<n>a)\k<n> a(?=b).* a(?!b).* .*(?<=b) .*(?<!b) ((?!__).)* (?!a).*|b
    (?x)a
""")
MALFORMED = of_text(r"""
    ( ) a) (a [ [a [] [^] *a + a** a{ a{2,1} \ \y \p{Nonsense} \p{Lower [b-a] (?<1>a) (?<>a)
    (?q)a \x1 \u12 [a&& (?P<n>a)
""")


@pytest.mark.spark
def test_a_pattern_matches_the_names_that_java_matches(spark):
    java = spark._jvm.java.util.regex.Pattern
    different = {
        pattern: (expected, got)
        for pattern in PATTERNS
        if (expected := [name for name in NAMES if java.matches(pattern, name)])
        != (got := [name for name in NAMES if matches_topic(pattern, name)])
    }
    assert different == {}


@pytest.mark.spark
def test_what_is_refused_as_malformed_is_refused_by_java(spark):
    java = spark._jvm.java.util.regex.Pattern
    for pattern in MALFORMED:
        with pytest.raises(InvalidOptionError, match="not a Java regular expression"):
            JavaPattern.parse(pattern)
        with pytest.raises(IllegalArgumentException):
            java.compile(pattern)


@pytest.mark.parametrize("pattern", BACKTRACKING)
def test_what_needs_backtracking_is_refused_and_named(pattern):
    with pytest.raises(
        InvalidOptionError, match=r"cannot be matched in bounded time: .* character"
    ):
        JavaPattern.parse(pattern)


@pytest.mark.parametrize("pattern", ["", *MALFORMED])
def test_what_is_no_pattern_is_refused_with_its_place(pattern):
    with pytest.raises(InvalidOptionError, match=r"option subscribePattern is"):
        JavaPattern.parse(pattern)


@pytest.mark.parametrize(
    "pattern", ["(" * 5000, "(" * 1000 + ")" * 1000, "[" * 1000, "((a{900}){900}){900}"]
)
def test_a_monstrous_pattern_is_refused(pattern):
    with pytest.raises(InvalidOptionError):
        JavaPattern.parse(pattern)


@pytest.mark.parametrize("pattern", ["(a+)+b", "(a*)*b", "(a|a)*b", "(.*a){20}b", "(?!(a+)+b).*c"])
def test_time_is_linear_in_the_name(pattern):
    matches_topic(pattern, "warm")
    begin = time.perf_counter()
    assert not matches_topic(pattern, "a" * 248 + "x")
    assert time.perf_counter() - begin < 1  # Python's re takes years
