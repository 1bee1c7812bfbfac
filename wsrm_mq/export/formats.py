"""The formats of segments: NDJSON, CSV, a ZIP of envelopes, Parquet.

An unknown value is ``null``, or nothing between two commas. Moments are ISO 8601 in UTC; bytes are base64 where the
format has no bytes of its own.
"""

from __future__ import annotations

import base64
import gzip
import zipfile
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, BinaryIO, Final, NamedTuple, Protocol

import msgspec

from wsrm_mq.errors import ConfigurationError
from wsrm_mq.export.pieces import Row
from wsrm_mq.export.schema import Column, Kind

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST: Final = 253_402_300_799_999
"""The end of the year 9999: no calendar here has later moments."""
_COMPRESSION: Final = 4
_QUOTE: Final = '"'
_COMPUTED: Final = ("=", "+", "-", "@", "\t", "\r", "\n")
"""The first characters of a cell that a spreadsheet takes for a formula; it ignores white space before them."""
_BLANK: Final = b"\xef\xbb\xbf \t\r\n"
_IN_ZIP: Final = ("envelope", "position", "received_at")
_OLDEST: Final = (1980, 1, 1, 0, 0, 0)
"""A ZIP knows nothing older."""
_PRIVATE: Final = 0o600 << 16


class Writer(Protocol):
    """Writes the rows of one segment."""

    def write(self, rows: Sequence[Row]) -> None: ...
    def close(self) -> None:
        """The file itself stays open."""


class Format(NamedTuple):
    """A format of segments: the suffix of the files, and the writer."""

    suffix: str
    writer: Callable[[BinaryIO, Sequence[Column]], Writer]
    needed: tuple[str, ...] = ()
    """Columns without which it cannot be."""
    most_rows: int = 1_000_000
    """The most rows that a segment can hold."""


def moment(at: int) -> datetime:
    """Convert ms since the epoch."""
    return EPOCH + timedelta(milliseconds=min(at, _LATEST))


def _iso(at: int) -> str:
    return f"{moment(at).replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")


_IN_JSON: Final[dict[Kind, Callable[[Any], object]]] = {Kind.TIME: _iso, Kind.BOOLEAN: bool, Kind.BYTES: _base64}


def _converted(rows: Iterable[Row], columns: Sequence[Column]) -> Iterable[list[Any]]:
    """Rows with values that JSON has."""
    converting = [(place, _IN_JSON[one.kind]) for place, one in enumerate(columns) if one.kind in _IN_JSON]
    for row in rows:
        values = list(row)
        for place, convert in converting:
            if values[place] is not None:
                values[place] = convert(values[place])
        yield values


def _lines(rows: Iterable[Row], columns: Sequence[Column]) -> bytes:
    names = [column.name for column in columns]
    return _encode([dict(zip(names, row, strict=True)) for row in _converted(rows, columns)])


_encode: Final = msgspec.json.Encoder().encode_lines


class _Compressed:
    """A compressed file of lines."""

    def __init__(self, file: BinaryIO, columns: Sequence[Column]) -> None:
        self._file = gzip.GzipFile("", "wb", _COMPRESSION, file, mtime=0)
        self._columns = columns

    def close(self) -> None:
        self._file.close()


class _NDJSON(_Compressed):
    def write(self, rows: Sequence[Row]) -> None:
        self._file.write(_lines(rows, self._columns))


class _CSV(_Compressed):
    """Text is quoted, so that empty is told from unknown."""

    def __init__(self, file: BinaryIO, columns: Sequence[Column]) -> None:
        super().__init__(file, columns)
        self._file.write(",".join(column.name for column in columns).encode() + b"\r\n")

    def write(self, rows: Sequence[Row]) -> None:
        lines = (",".join(map(_cell, row)) for row in _converted(rows, self._columns))
        self._file.write("".join(f"{line}\r\n" for line in lines).encode())


class _Spreadsheet(_CSV):
    """Text that a spreadsheet would compute begins with an apostrophe, so that it stays text."""

    def write(self, rows: Sequence[Row]) -> None:
        super().write([tuple(map(_harmless, row)) for row in rows])


def _harmless(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value.startswith(_COMPUTED) else value


def _cell(value: str | int | bool | None) -> str:
    if isinstance(value, str):
        return f'"{value.replace(_QUOTE, _QUOTE * 2)}"'
    return "" if value is None else str(value).lower()


class _ZIP:
    """Each envelope is a file, named by its position; ``index.ndjson`` has that name in its place."""

    def __init__(self, file: BinaryIO, columns: Sequence[Column]) -> None:
        places = {column.name: place for place, column in enumerate(columns)}
        self._envelope, self._position, self._received_at = map(places.__getitem__, _IN_ZIP)
        self._columns = [Column("file", Kind.TEXT) if one.name == "envelope" else one for one in columns]
        self._archive = zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED)
        self._index: list[bytes] = []

    def write(self, rows: Sequence[Row]) -> None:
        listed = []
        for row in rows:
            name, content = None, row[self._envelope]
            if content is not None:
                suffix = "xml" if content.lstrip(_BLANK).startswith(b"<") else "bin"
                name = f"{row[self._position]:012}.{suffix}"
                member = zipfile.ZipInfo(name, max(moment(row[self._received_at]).timetuple()[:6], _OLDEST))
                member.compress_type, member.external_attr = zipfile.ZIP_DEFLATED, _PRIVATE
                self._archive.writestr(member, content)
            listed.append((*row[: self._envelope], name, *row[self._envelope + 1 :]))
        self._index.append(_lines(listed, self._columns))

    def close(self) -> None:
        self._archive.writestr("index.ndjson", b"".join(self._index))
        self._archive.close()


def format_named(name: str) -> Format:
    """Answer the format with this name. Raises ``ConfigurationError`` where there is none, or where a package that it
    needs is missing."""
    if name not in FORMATS and name != _PARQUET:
        raise ConfigurationError(f"there is no format {name!r}; there are {', '.join((*FORMATS, _PARQUET))}.")
    return FORMATS.get(name) or _parquet()


def _parquet() -> Format:
    try:
        from wsrm_mq.export.arrow import ParquetWriter
    except ImportError as error:
        raise ConfigurationError("Parquet needs pyarrow: `pip install 'wsrm-mq[export]'`.") from error
    return Format("parquet", ParquetWriter)


FORMATS: Final = {
    "ndjson": Format("ndjson.gz", _NDJSON),
    "csv": Format("csv.gz", _CSV),
    "spreadsheet": Format("csv.gz", _Spreadsheet),
    "zip": Format("zip", _ZIP, _IN_ZIP, 10_000),
}
_PARQUET: Final = "parquet"
