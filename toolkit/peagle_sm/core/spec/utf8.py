"""Text that must be UTF-8: what is wrong with it, and where. Pure."""

from __future__ import annotations

from peagle_sm.core.errors import SpecError

_STEP = "Convert it to UTF-8, for example with `iconv -f latin1 -t utf-8 FILE`."


def utf8_text(data: bytes, where: str, first_line: int = 1) -> str:
    """Decode text; ``first_line`` is the number of its first line.

    Raises:
        SpecError: it is not UTF-8; the message has ``where``, the line and the byte.
    """
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = first_line + data.count(b"\n", 0, error.start)
        raise SpecError(
            f"{where}, line {line}: found byte 0x{data[error.start]:02x}, which is not UTF-8; "
            "allowed: UTF-8 text.",
            next_step=_STEP,
        ) from None


def encoded_utf8(text: str, where: str) -> bytes:
    """Encode text.

    Raises:
        SpecError: it holds half a character, as Python writes a command line that is not UTF-8.
    """
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        code = ord(text[error.start])
        found = (
            f"byte 0x{code - 0xDC00:02x}" if 0xDC80 <= code <= 0xDCFF else f"half a character, U+{code:04X}"
        )
        raise SpecError(
            f"{where}: found {found} (position {error.start}), which is not UTF-8; allowed: UTF-8 text.",
            next_step=_STEP,
        ) from None
