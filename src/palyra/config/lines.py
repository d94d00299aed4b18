"""Line numbers: on which line of a TOML text each table, key and list element stands.

Does not own: values, wrong TOML.
The standard library's parser gives no positions, so the text is walked a second time here. It was parsed before, so
this walk only needs to know where things end.
Invariant: every key path of the parsed document has its line. A test checks that.
"""

from bisect import bisect_right

Path = tuple[str | int, ...]

_BARE_END = frozenset(",]}#\n")
_SPACE = " \t\r"
_ESCAPES = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r", '"': '"', "\\": "\\"}
_UNICODE_LENGTHS = {"u": 4, "U": 8}


def find_lines(text: str) -> dict[Path, int]:
    """Returns lines counted from 1, by path: keys are text, places in lists are numbers."""
    walk = _Walk(text)
    walk.document()
    return walk.lines


class _Walk:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._ends = [place for place, letter in enumerate(text) if letter == "\n"]
        self._last_indexes: dict[Path, int] = {}
        self.lines: dict[Path, int] = {}

    def document(self) -> None:
        table: Path = ()
        while self._skip_blank():
            if self._text.startswith("[[", self._at):
                table = self._array_header()
            elif self._peek() == "[":
                table = self._header()
            else:
                self._pair(table)

    def _header(self) -> Path:
        line = self._line()
        self._at += 1
        path = self._resolve(self._keys("]"), line)
        self._at += 1
        return path

    def _array_header(self) -> Path:
        line = self._line()
        self._at += 2
        *parents, last = self._keys("]")
        array = (*self._resolve(parents, line), last)
        index = self._last_indexes.get(array, -1) + 1
        self._last_indexes[array] = index
        self._note(array, line)
        self._note((*array, index), line)
        self._at += 2
        return (*array, index)

    def _resolve(self, keys: list[str], line: int) -> Path:
        """Continues a header's keys in the last element of a list of tables."""
        path: Path = ()
        for key in keys:
            path = (*path, key)
            self._note(path, line)
            if path in self._last_indexes:
                path = (*path, self._last_indexes[path])
        return path

    def _pair(self, table: Path) -> None:
        line = self._line()
        path = table
        for key in self._keys("="):
            path = (*path, key)
            self._note(path, line)
        self._at += 1
        self._skip_space()
        self._value(path)

    def _value(self, path: Path) -> None:
        letter = self._peek()
        if letter == "{":
            self._inline_table(path)
        elif letter == "[":
            self._array(path)
        elif letter in ("'", '"'):
            self._string()
        else:
            while self._at < len(self._text) and self._peek() not in _BARE_END:
                self._at += 1

    def _inline_table(self, path: Path) -> None:
        self._at += 1
        while self._skip_blank_and_commas() and self._peek() != "}":
            self._pair(path)
        self._at += 1

    def _array(self, path: Path) -> None:
        self._at += 1
        index = 0
        while self._skip_blank_and_commas() and self._peek() != "]":
            self._note((*path, index), self._line())
            self._value((*path, index))
            index += 1
        self._at += 1

    def _keys(self, end: str) -> list[str]:
        """Returns the parts of a dotted key up to `end`, which is not consumed."""
        keys = []
        while self._at < len(self._text) and self._peek() != end:
            if self._peek() in (".", *_SPACE):
                self._at += 1
            else:
                keys.append(self._string() if self._peek() in ("'", '"') else self._bare_key(end))
        return keys

    def _bare_key(self, end: str) -> str:
        start = self._at
        stops = {end, ".", "\n", *_SPACE}
        while self._at < len(self._text) and self._peek() not in stops:
            self._at += 1
        if self._at == start:
            self._at += 1  # A line end here is wrong TOML: skip it, whatever it is.
        return self._text[start : self._at]

    def _string(self) -> str:
        quote = self._peek()
        fence = quote * 3 if self._text.startswith(quote * 3, self._at) else quote
        self._at += len(fence)
        pieces: list[str] = []
        while self._at < len(self._text) and not self._text.startswith(fence, self._at):
            pieces.append(self._escape() if quote == '"' and self._peek() == "\\" else self._take(1))
        self._at += len(fence)
        while len(fence) == 3 and self._at < len(self._text) and self._peek() == quote:
            self._at += 1  # Up to two quotes may stand directly before the closing three.
        return "".join(pieces)

    def _escape(self) -> str:
        self._at += 1
        letter = self._take(1)
        if letter in _UNICODE_LENGTHS:
            code = self._take(_UNICODE_LENGTHS[letter])
            return chr(int(code, 16))
        return _ESCAPES.get(letter, "")

    def _take(self, count: int) -> str:
        taken = self._text[self._at : self._at + count]
        self._at += count
        return taken

    def _skip_blank_and_commas(self) -> bool:
        while self._skip_blank() and self._peek() == ",":
            self._at += 1
        return self._at < len(self._text)

    def _skip_blank(self) -> bool:
        """Skips spaces, line ends and comments; tells whether anything follows."""
        while self._at < len(self._text):
            if self._peek() == "#":
                end = self._text.find("\n", self._at)
                self._at = len(self._text) if end < 0 else end
            elif self._peek() in (*_SPACE, "\n"):
                self._at += 1
            else:
                return True
        return False

    def _skip_space(self) -> None:
        while self._at < len(self._text) and self._peek() in _SPACE:
            self._at += 1

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _line(self) -> int:
        return bisect_right(self._ends, self._at - 1) + 1

    def _note(self, path: Path, line: int) -> None:
        self.lines.setdefault(path, line)
