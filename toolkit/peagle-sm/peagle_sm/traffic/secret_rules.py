"""Rules for secrets that the library (bc-detect-secrets) does not know. Pure.

Each rule has needles: a text without one of them is not searched, so that ordinary text costs little. The
formats are those of the issuers' pages; `tests/traffic/planted.py` names them.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

#: (start, end) in a text.
Span = tuple[int, int]


@dataclass(frozen=True)
class SecretRule:
    """Search for one kind of secret; the pattern's group ``secret``, or all of it, is the secret."""

    kind: str
    needles: tuple[str, ...]  #: any of them is in each text that has the secret
    pattern: re.Pattern[str]
    check: Callable[[str], bool] | None = None  #: of the secret

    def spans(self, text: str) -> Iterator[Span]:
        """Yield where the secrets are."""
        if self.needles and not any(needle in text for needle in self.needles):
            return
        group = "secret" if "secret" in self.pattern.groupindex else 0
        for match in self.pattern.finditer(text):
            if self.check is None or self.check(match[group]):
                yield match.span(group)


def _rule(
    kind: str, needles: str, pattern: str, check: Callable[[str], bool] | None = None, flags: int = 0
) -> SecretRule:
    return SecretRule(kind, tuple(needles.split()), re.compile(pattern, re.ASCII | flags), check)


def is_mixed(text: str) -> bool:
    """Return whether a text has digits and letters of both cases, as random keys have."""
    return any(map(str.isdigit, text)) and text.lower() != text != text.upper()


def _has_digit(text: str) -> bool:
    return any(map(str.isdigit, text))


def _class_of(character: str) -> int:
    return 0 if character.isupper() else 1 if character.islower() else 2


def is_random_base64(text: str) -> bool:
    """Return whether 40 characters look random: no hash in hex, no path, no identifier."""
    changes = sum(_class_of(one) != _class_of(other) for one, other in pairwise(text))
    longest = max((len(run) for run in re.findall(r"[a-z]+", text)), default=0)
    return is_mixed(text) and changes >= 14 and longest <= 11 and text.count("/") <= 4


def _is_basic(text: str) -> bool:
    """Return whether a text is ``user:password`` in base64."""
    try:
        return b":" in base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except ValueError:
        return False


TOKEN_RULES: tuple[SecretRule, ...] = (
    _rule("aws key", "AKIA ASIA ABIA ACCA", r"(?<![A-Z0-9])(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}(?![A-Z0-9])"),
    _rule("aws key", "", r"(?<![A-Za-z0-9/+_-])[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=_-])", is_random_base64),
    _rule("aws key", "IQoJb3JpZ2lu FwoGZXIvYXdz", r"(?:IQoJb3JpZ2lu|FwoGZXIvYXdz)[A-Za-z0-9/+=]{60,}"),
    _rule("github token", "ghp_ gho_ ghu_ ghs_ ghr_", r"gh[pousr]_[A-Za-z0-9_.-]{20,}"),
    _rule("github token", "github_pat_", r"github_pat_[A-Za-z0-9_]{20,}"),
    _rule(
        "gitlab token",
        "glpat- gldt- glrt- glcbt- glptt- glsoat- glft- glimt- glagent- glffct-",
        r"gl[a-z]{2,5}-[A-Za-z0-9_.-]{20,}",
    ),
    _rule("slack token", "xox xapp-", r"(?:xox[a-z]|xapp)-[A-Za-z0-9.-]{10,}"),
    _rule(
        "slack webhook",
        "hooks.slack.com",
        r"hooks\.slack\.com/(?:services|workflows|triggers)/(?P<secret>[A-Za-z0-9/_-]{20,})",
    ),
    _rule("stripe key", "k_live_ k_test_ whsec_", r"(?:[sr]k_(?:live|test)_|whsec_)[A-Za-z0-9+/=]{10,}"),
    # OpenAI, Anthropic, DeepSeek, OpenRouter …: keys have digits and capitals, "risk-adjusted" has not.
    _rule("model provider key", "sk-", r"(?<![A-Za-z0-9])sk-[A-Za-z0-9_-]{20,}", is_mixed),
    _rule("model provider key", "sk- gsk_ xai- pplx- r8_", r"(?:gsk_|xai-|pplx-|\br8_)[A-Za-z0-9]{30,}"),
    _rule("model provider key", "sk-", r"(?<![A-Za-z0-9])sk-(?:[a-z]+-)?[a-f0-9]{32,}"),
    _rule("hugging face token", "hf_ api_org_", r"(?:\bhf|api_org)_[A-Za-z0-9]{30,}"),
    _rule("google key", "AIza", r"AIza[A-Za-z0-9_-]{35}"),
    _rule("google key", "GOCSPX-", r"GOCSPX-[A-Za-z0-9_-]{20,}"),
    _rule("google key", "ya29. 1//0", r"(?:ya29\.|1//0)[A-Za-z0-9_-]{20,}"),
    _rule("azure key", "Q~", r"[A-Za-z0-9_.~-]{3}\dQ~[A-Za-z0-9_.~-]{31,40}"),
    _rule("azure key", "sig=", r"[?&;]sig=(?P<secret>[A-Za-z0-9%+/=_-]{20,})"),
    _rule(
        "jwt", "eyJ", r"(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*){0,3}"
    ),
    _rule("npm token", "npm_", r"npm_[A-Za-z0-9]{36}"),
    _rule("pypi token", "pypi-", r"pypi-[A-Za-z0-9_-]{50,}"),
    _rule("sendgrid key", "SG.", r"SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}"),
    _rule("twilio key", "SK", r"(?<![A-Za-z0-9])SK[0-9a-f]{32}"),
    _rule("digitalocean token", "dop_v1_ doo_v1_ dor_v1_", r"do[por]_v1_[a-f0-9]{40,}"),
    _rule("telegram token", ":AA", r"(?<!\d)\d{8,10}:AA[A-Za-z0-9_-]{33}"),
    _rule("shopify token", "shp", r"shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}"),
    _rule("databricks token", "dapi", r"(?<![A-Za-z0-9])dapi[a-f0-9]{32}(?:-\d)?"),
    _rule("vault token", "hvs. hvb. hvr.", r"hv[sbr]\.[A-Za-z0-9_-]{24,}"),
    _rule("docker token", "dckr_", r"dckr_(?:pat|oat)_[A-Za-z0-9_-]{20,}"),
    _rule(
        "token", "lin_api_ ntn_ secret_ sntrys_", r"(?:lin_api_|ntn_|\bsecret_|sntrys_)[A-Za-z0-9_=+/-]{32,}"
    ),
    _rule("token", "earer", r"[Bb]earer\s{1,3}(?P<secret>[A-Za-z0-9._~+/-]{16,}=*)", _has_digit),
    _rule("password", "asic ", r"[Bb]asic\s{1,3}(?P<secret>[A-Za-z0-9+/]{12,}={0,2})", _is_basic),
    # The password, or a token that is the whole user information.
    _rule("password", "://", r"://[^\s/@:\"'<>]*:(?P<secret>[^\s/\"'<>]+)@[^\s/@]"),
    _rule("token", "://", r"://(?P<secret>[^\s/@:\"'<>]{16,})@[^\s/@]"),
)

#: Blanks may be plus signs: a form writes them so.
_BEGIN = re.compile(r"-----BEGIN[ +](?:[A-Z0-9]+[ +]){0,3}PRIVATE[ +]KEY(?:[ +]BLOCK)?-----")
_END = re.compile(r"-----END[ +][A-Z0-9 +]{3,40}-----")
_KEY_LINES = re.compile(r"[\sA-Za-z0-9+/=]*")
_LONGEST_KEY = 50_000


def private_key_spans(text: str) -> Iterator[Span]:
    """Yield PEM private keys; one that is cut has only lines of base64."""
    if "PRIVATE" not in text:
        return
    for begin in _BEGIN.finditer(text):
        end = _END.search(text, begin.end(), begin.end() + _LONGEST_KEY)
        end = end or _KEY_LINES.match(text, begin.end())
        if end is not None:
            yield begin.start(), end.end()


#: Names of passwords by their beginnings, which are found without a regular expression. Also in German,
#: French, Spanish and Portuguese; the letter with a tilde may be escaped.
_PASSWORDS = {
    "pass": "passw(?:or)?ds?|passphrase|passwort",
    "pwd": "pwd",
    "kennwort": "kennwort",
    "mot": "mot[ +]de[ +]passe",
    "contrase": r"contrase[^\s:=]{1,10}?a(?![a-z])",
    "senha": "(?<![a-z])senha",
}
_TOKENS = {each: each for each in ("secret", "token", "authorization")} | {"credential": "credentials?"}
_KEYS = "(?:api|access|account|private|shared|signing|encryption|auth|secret|subscription|master)[ +_-]?"
_LONGEST_BEFORE_KEY = 13
_NAMES = "|".join([*_PASSWORDS.values(), *_TOKENS.values(), f"{_KEYS}key"])
_VALUE = r"(?:&(?![A-Za-z_]\w*=)|[^\s\"'`,;&<>(){}\[\]|\\]){6,}"
#: After words: it ends at a dash or arrow, so that a text of names and dashes is not searched for each.
_TOLD = _VALUE.replace(r"[^\s", r"[^\s\u2013\u2014\u2192")
_WORD = r"(?:is|ist|es|est)"
#: A password may have brackets, commas and semicolons; a comma before a name and a sign ends it.
_PASSWORD_VALUE = r"(?![(\[,;+]|\$\()(?:[,;&](?![A-Za-z_]\w{0,40}[ \t]?[=:])|[^\s\"'`,;&<>{}|\\]){6,}"
#: In quotes it may have any character but blanks; a text between two strings of code does not count.
_QUOTED = r"(?P<quote>[\"'`])(?![(,;:)\]}+&|.])(?P<quoted>(?:(?!(?P=quote))\S){6,200})(?P=quote)|"
_MARK = r"(?:[*_]{1,3}|</?(?:b|strong)>)?"  #: bold and italic
_LINES = r"[ \t]{0,8}\r?\n(?:[ \t]{0,8}\r?\n)?"


def _then(value: str, quoted: str = "") -> str:
    """Return what may follow a name.

    A value after a sign is ``secret`` or ``quoted``, one alone on the next line or in a block of code is
    ``line``, one after words ``told``. ``form`` is the same in a form, where plus signs are blanks: it ends
    at one, so that a long text of names is not searched again for each.
    """
    return (
        rf"\d?[\"'`\]]{{0,3}}{_MARK}(?:"
        rf"[ \t+]{{0,8}}(?::=|=>|=|:|\uff1a){_MARK}[ \t+]{{0,8}}{_MARK}"
        rf"(?:{quoted}[\"'`]?(?P<secret>{value})(?P<after>[(\[]?))"
        rf"|:{_MARK}{_LINES}(?:[ \t]{{0,8}}```\w{{0,12}}\r?\n)?[ \t]{{0,8}}[\"'`]?"
        rf"(?P<line>{_VALUE})[\"'`]?(?=[ \t]{{0,8}}(?:\r?\n|\Z))"
        rf"|(?:[ \t]{{1,4}}|(?=->|[\u2013\u2014\u2192]))"
        rf"(?P<told_by>{_WORD}[ \t]?:?{_MARK}[ \t]|-{_MARK}[ \t]|(?:->|[\u2013\u2014\u2192])[ \t]?|)"
        rf"[ \t]{{0,4}}[\"'`]?(?P<told>{_TOLD})(?P<after_told>[(\[]?)"
        rf"|\+(?P<form_by>{_WORD}(?::|%3a)?\+|-\+|)(?P<form>[^\s\"'`,;&<>(){{}}\[\]|\\+]{{6,}}))"
    )


_THEN = _then(_VALUE)
_THEN_PASSWORD = _then(_PASSWORD_VALUE, _QUOTED)
_NAMED_VALUES = [
    *(
        (beginning, re.compile(rf"(?P<name>{names}){_THEN_PASSWORD}", re.ASCII))
        for beginning, names in _PASSWORDS.items()
    ),
    *(
        (beginning, re.compile(rf"(?P<name>{names}){_THEN}", re.ASCII))
        for beginning, names in (_TOKENS | {"key": "key"}).items()
    ),
    ("pass", re.compile(rf"(?<![a-z])(?P<name>pass){_THEN}", re.ASCII)),
]
_BEFORE_KEY = re.compile(rf"{_KEYS}\Z")
_ASCII_LOWER = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}
_NAMED = re.compile(rf"(?:.*[_.-])?(?:x-)?(?:{_NAMES})", re.ASCII | re.IGNORECASE)
_CODE = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+|[A-Za-z_]+|\$\{?\w+\}?|%\w+%?|\*+|\.+")
#: What is code in quotes, too: a name, a variable, a template.
_TEMPLATE = re.compile(r"[A-Za-z_]+(?:\.[A-Za-z_]+)*|\$\{?\w+\}?|%\w+%?|\*+|\.+|\$?[{(<].*[})>]")
#: A call or an index: a name before the bracket, or names and signs as in ``str=Field(``.
_CALL = re.compile(r"(?P<name>[A-Za-z_][\w.=:,]*)[(\[]")
_NUMBER = re.compile(r"[\d.,:+-]+")
#: What has digits and letters in ordinary sentences: sizes and times, algorithms, files, addresses, names.
_ORDINARY = re.compile(
    r"v?\d[\d.,:/t_-]*(?:%|[kmgt]?b|bits?|bytes?|char(?:acter)?s?|digits?|k|m|z|s|ms|min|h|x|am|pm|st|nd|rd|th)?"
    r"|\d+(?:-[a-z]+)+"
    r"|(?:hmac[-_/]?)?(?:sha|md|base|utf|rfc|oauth|[hrep]s|aes|rsa|ed|iso|tls|ssl|http|argon|pbkdf|x|bcrypt|u?int|b?float)"
    r"[-_/]?\d+(?:[-/.:][a-z0-9]+){0,3}"
    r"|secp\d+[a-z]\d[a-z]*"
    r"|(?:[a-z]?\d{1,5}x)+[a-z]?\d{1,5}"
    r"|(?:/|\./|~/|[a-z]+://).*"
    r"|[\w./~-]+\.(?:py|js|ts|go|rs|json|jsonl|txt|md|csv|pem|key|pub|env|ya?ml|toml|ini|conf|html)"
    r"|[a-z]+(?:_[a-z]+)*_[a-z]*\d{0,3}",
    re.ASCII,
)


def assigned_spans(text: str) -> Iterator[Span]:
    """Yield the values of ``password=…``, ``API_KEY: …`` and the like, except names in code.

    So with ``password is …``, ``api key: …`` and ``password …``, if the value looks like a secret.
    """
    lowered = text.lower()
    if len(lowered) != len(text):  # a few letters have a longer lower case
        lowered = text.translate(_ASCII_LOWER)
    for name, match in _named_values(lowered):
        groups = match.groupdict()
        kind = next(each for each in ("secret", "quoted", "line", "told", "form") if groups.get(each))
        start, end = match.span(kind)
        value = text[start:end]
        if kind == "quoted":
            is_secret = _TEMPLATE.fullmatch(value) is None
        elif kind == "secret" and _is_password(name):
            value = _trimmed(value)
            is_secret = not _is_code(value) and _is_given(name, None, value)
        elif groups["after"] or groups["after_told"]:
            is_secret = False
        elif kind == "line":
            is_secret = not value.endswith(":") and _is_given(name, "line", value)
        else:
            is_secret = _is_given(name, groups.get(f"{kind}_by"), value)
        if is_secret:
            yield start, start + len(value)


def _trimmed(value: str) -> str:
    """Return a password without the punctuation of the sentence or the call that it ends."""
    return value.rstrip(",;" if "(" in value or "[" in value else ",;)]")


def _is_code(value: str) -> bool:
    """Return whether a value that is not quoted begins with a call, an index, or a name and a comma."""
    if "," in value and _CODE.fullmatch(value.partition(",")[0]):
        return True
    call = _CALL.match(value)
    if call is None:
        return False
    name = call["name"]
    return not _has_digit(name) or "." in name or "_" in name or _ORDINARY.fullmatch(name.lower()) is not None


def _named_values(lowered: str) -> Iterator[tuple[str, re.Match[str]]]:
    """Yield each name with what follows it; a name in the value after a sign is a part of that."""
    for beginning, pattern in _NAMED_VALUES:
        at = lowered.find(beginning)
        while at >= 0:
            match = pattern.match(lowered, at)
            if match is not None and beginning == "key":
                before = _BEFORE_KEY.search(lowered, max(0, at - _LONGEST_BEFORE_KEY), at)
                if before is not None:
                    yield before[0] + "key", match
            elif match is not None:
                yield match["name"], match
            after = match.end() if match is not None and match["secret"] is not None else at + len(beginning)
            at = lowered.find(beginning, after)


def is_secret_name(name: str) -> bool:
    """Return whether a field of this name holds a secret: ``client_secret``, ``x-api-key`` …"""
    return _NAMED.fullmatch(name) is not None


def is_value(name: str, value: str) -> bool:
    """Return whether a value assigned to a secret's name is a secret, and not code or a count."""
    if _CODE.fullmatch(value):
        return False
    if not _is_password(name):
        return len(value) >= 8 and _NUMBER.fullmatch(value) is None and _has_digit(value)
    return len(value) >= 6


def _is_password(name: str) -> bool:
    return name.lower().startswith(tuple(_PASSWORDS))


def _is_given(name: str, by: str | None, value: str) -> bool:
    """Return whether the value after a name is a secret; ``by`` are the words between, None for a sign.

    Sentences have these names, too: without a sign, the value must have digits and letters and not be
    ordinary. After the name of a token, with nothing between, or after ``pass`` (also a verb), it must
    look random.
    """
    if by is None and name != "pass":
        is_prose = " " in name or "+" in name
        return is_value(name, value) and not (is_prose and _ORDINARY.fullmatch(value.lower()))
    bare = value.strip(".,:!?*_")
    if not (_has_digit(bare) and any(map(str.isalpha, bare))) or _CODE.fullmatch(bare):
        return False
    if _ORDINARY.fullmatch(bare.lower()):
        return False
    if name == "pass" or by == "":
        return len(bare) >= (8 if _is_password(name) else 16) and _is_tangled(bare)
    return len(bare) >= 6 if _is_password(name) else len(bare) >= 12 and _alternates(bare)


_HEX_DIGITS = re.compile(r"[0-9A-Fa-f-]{16,}")
_WORD_IN_NAME = re.compile(r"[a-z]{6}")


def _is_tangled(text: str) -> bool:
    """Return whether a text alternates and has no word, as random text and not names."""
    return _HEX_DIGITS.fullmatch(text) is not None or (
        _alternates(text) and _WORD_IN_NAME.search(text) is None
    )


def _alternates(text: str) -> bool:
    """Return whether small letters, capitals and digits alternate, or all are hexadecimal digits."""
    characters = [each for each in text if each.isalnum()]
    changes = sum(_class_of(one) != _class_of(other) for one, other in pairwise(characters))
    return 3 * changes >= len(characters) or _HEX_DIGITS.fullmatch(text) is not None


_CURL_USER = re.compile(
    r"(?<![\w-])(?:-[A-Za-z]{0,8}[uU](?:[ +]{0,3}|=)|--(?:proxy-)?user(?:[ +]{1,3}|=))"
    r"(?:(?P<quote>[\"'])(?P<quoted_name>[^\s:\"']{1,64}):(?P<quoted>[^\n\"']{4,100})(?P=quote)"
    r"|[\"']?(?P<name>[^\s:\"']{1,64}):(?P<secret>[^\s\"'`\\]{4,}))"
)
_COMMAND = 400  #: characters before the option that have the name of its command
_STRINGS = re.compile(r"\"[^\"\n]*\"|'[^'\n]*'")
#: The end of a command; a line that begins with an option goes on.
_COMMAND_ENDS = re.compile(r"[;|]|&(?=[&\s])|(?<!\\)(?<!\\\r)\n(?![ \t+]{0,16}-)")


#: What begins a password option's value, after the option and its blanks or equals sign.
_QUOTED_VALUE = r"(?P<quote>[\"'])(?P<quoted>[^\n\"']{2,100})(?P=quote)"
_PLAIN_VALUE = r"(?P<secret>(?![-\"'<{(\[])[^\s\"'`;|&<>\\]{4,})"
_APART = r"(?:[ \t+]{1,3}|=)"
#: Commands whose option is a password, by its form: apart from the option, together with it, or both.
#: Sources: the manual pages. Of ``mysql -p word`` the word is a database.
_PASSWORD_OPTIONS = (
    ("sshpass", rf"-p(?:{_APART})?"),
    ("mysql", "-p"),
    ("mariadb", "-p"),
    ("redis-cli", rf"(?:-a|--pass){_APART}"),
    ("mongo", rf"-p{_APART}"),
    ("sqlcmd", r"-P[ \t+]{0,3}"),
    ("ldap", r"-w[ \t+]{0,3}"),
    ("7z", "-p"),
    ("zip", rf"(?:-P|--password){_APART}"),
    (" login", rf"-p{_APART}"),
    ("smbclient", r"(?:-U|--user)(?:[ \t+]{1,3}|=)?[\"']?[^\s%\"']{1,64}%"),
    ("openssl", r"-pass(?:in|out)?[ \t+]{1,3}pass:"),
)
_COMMAND_PASSWORDS = [
    (command, re.compile(rf"(?<![\w-]){option}(?:{_QUOTED_VALUE}|{_PLAIN_VALUE})", re.ASCII))
    for command, option in _PASSWORD_OPTIONS
]
#: A value that is to be filled in.
_BLANK_VALUE = re.compile(
    r"\$.*|%\w+%|\*+|\.+|x+|(?:(?:your|my)[_-]?)?(?:pass(?:word|wd)?|secret)", re.IGNORECASE
)


def command_spans(text: str) -> Iterator[Span]:
    """Yield passwords in the options of commands: ``curl -u user:password``, ``sshpass -p password``.

    Other commands have user and group after ``-u``, and ports after ``-p``.
    """
    if "curl" in text:
        yield from _curl_spans(text)
    for command, pattern in _COMMAND_PASSWORDS:
        if command not in text:
            continue
        for match in pattern.finditer(text):
            group = "secret" if match["secret"] is not None else "quoted"
            secret = match[group].rstrip(";,.)") if group == "secret" else match[group]
            if _is_option_of(command, text, match.start()) and not _BLANK_VALUE.fullmatch(secret):
                start = match.start(group)
                yield start, start + len(secret)


def _curl_spans(text: str) -> Iterator[Span]:
    for match in _CURL_USER.finditer(text):
        group = "secret" if match["secret"] is not None else "quoted"
        user, secret = match["name"] or match["quoted_name"], match[group].rstrip(";,.)")
        if not _is_option_of("curl", text, match.start()):
            continue
        if not (_CODE.fullmatch(secret) or secret.startswith("$") or (user + secret).isdigit()):
            yield match.span(group)


def _is_option_of(command: str, text: str, at: int) -> bool:
    """Return whether the option at a place belongs to a command that begins before it."""
    _, name, between = text[max(0, at - _COMMAND) : at].rpartition(command)
    return bool(name) and _COMMAND_ENDS.search(_STRINGS.sub("", between)) is None


_ADDRESS = re.compile(
    "[A-Za-z0-9\u00c0-\u024f.!#$%&'*+/=?^_`{|}~-]{1,64}@"
    "(?:[A-Za-z0-9\u00c0-\u024f](?:[A-Za-z0-9\u00c0-\u024f-]{0,62})\\.){1,8}[A-Za-z\u00c0-\u024f]{2,24}"
)


def address_spans(text: str) -> Iterator[Span]:
    """Yield e-mail addresses; ``git@github.com:…`` is a remote."""
    if "@" not in text:
        return
    for match in _ADDRESS.finditer(text):
        if not (match[0].startswith("git@") and text[match.end() : match.end() + 1] in (":", "/")):
            yield match.span()


#: Length of an IBAN by country (SWIFT's IBAN registry).
_IBAN_LENGTHS = {
    country: int(row[:2])
    for row in (
        "15NO 16BE 18DKFIFKFOGLNLSD 19MKSI 20ATBAEEKZLTLUMNXK 21CHHRLILV 22BGBHCRDEGBGEIEMERSVA",
        "23AEGIILIQOMSOTL 24ADCZESMDPKROSASESKTNVG 25LYPTST 26ISTR 27BIDJFRGRITMCMRSM",
        "28ALAZBYCYDOGTHNHULBNIPLSV 29BREGPSQAUA 30JOKWMUYE 31MTSC 32LC 33RU",
    )
    for row in row.split()
    for country in re.findall("[A-Z]{2}", row)
}
_IBAN_BEGINS = re.compile(r"(?<![A-Za-z0-9])(?P<country>[A-Za-z]{2})\d{2}(?=[ +-]?[A-Za-z0-9])", re.ASCII)
_IBAN_REST = {
    length: re.compile(rf"(?:[ +-]?[A-Za-z0-9]){{{length - 4}}}(?![A-Za-z0-9])", re.ASCII)
    for length in set(_IBAN_LENGTHS.values())
}


def iban_spans(text: str) -> Iterator[Span]:
    """Yield bank accounts: an IBAN of its country's length with the right check digits (ISO 13616)."""
    for begin in _IBAN_BEGINS.finditer(text):
        length = _IBAN_LENGTHS.get(begin["country"].upper())
        rest = _IBAN_REST[length].match(text, begin.end()) if length is not None else None
        if rest is None:
            continue
        account = re.sub(r"[ +-]", "", text[begin.start() : rest.end()]).upper()
        if int("".join(str(int(character, 36)) for character in account[4:] + account[:4])) % 97 == 1:
            yield begin.start(), rest.end()


_DIGITS = re.compile(
    r"(?<![A-Za-z0-9.])\d(?:(?:[ +-]?\d){11,63}|\d{3}\.(?:\d{4}\.\d{4}\.\d{4}|\d{6}\.\d{5}))(?![A-Za-z0-9])",
    re.ASCII,
)
_GROUPS = re.compile(r"\d+")
_CARD_LENGTHS = range(12, 20)
#: First digits and lengths of the card schemes (ISO/IEC 7812; the schemes' own pages).
_SCHEME = re.compile(
    r"4\d{12}(?:\d{3}){0,2}|5[1-5]\d{14}|2(?:2[2-9]|[3-6]\d|7[01])\d{13}|2720\d{12}|3[47]\d{13}"
    r"|6(?:011|4[4-9]\d|5\d\d)\d{12,15}|3(?:0[0-5]|[689]\d)\d{11,16}|35(?:2[89]|[3-8]\d)\d{12}|(?:62|81)\d{14,17}"
    r"|(?:5018|5020|5038|5893|6304|6759|676[1-3])\d{8,15}"
)


def card_spans(text: str) -> Iterator[Span]:
    """Yield card numbers: a scheme's first digits and length, and Luhn's check digit."""
    for run in _DIGITS.finditer(text):
        groups = list(_GROUPS.finditer(text, *run.span()))
        first = 0
        while first < len(groups):
            last = next((end for end in range(len(groups), first, -1) if _is_card(groups[first:end])), None)
            if last is not None:
                yield groups[first].start(), groups[last - 1].end()
            first = last or first + 1


def _is_card(groups: list[re.Match[str]]) -> bool:
    if len(groups) > 8:
        return False
    number = "".join(group[0] for group in groups)
    return len(number) in _CARD_LENGTHS and _SCHEME.fullmatch(number) is not None and passes_luhn(number)


def passes_luhn(number: str) -> bool:
    """Return whether the last digit is Luhn's check digit of the others."""
    total = 0
    for place, digit in enumerate(reversed(number)):
        value = int(digit) * (1 + place % 2)
        total += value - 9 if value > 9 else value
    return total % 10 == 0
