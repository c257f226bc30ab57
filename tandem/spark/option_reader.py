"""Reads the options of a source or sink: texts under names without case; reports every problem.

    options = OptionReader("commitlog source", ("topic", "checkCrc"), raw)
    check_crc = options.flag("checkCrc", default=True)
    options.finish()                        # raises OptionError if anything was wrong

Spark hands option names over in lower case. A name that is not known is a problem too.
"""

import datetime as dt
import difflib
from collections.abc import Mapping, Sequence
from typing import Final

from tandem.spark.errors import OptionError
from tandem.tls_files import TLSFiles

TLS_OPTIONS: Final = ("tlsCaFile", "tlsCertificateFile", "tlsKeyFile")
"""As in `TLSFiles`; the files have to be there on all machines that run tasks."""


class OptionReader:
    """Typed values out of `raw`. A value that is wrong is noted and read as if it were absent.

    `whose` begins the text of the error; `known` are all option names, as they are documented.
    """

    def __init__(self, whose: str, known: Sequence[str], raw: Mapping[str, str]) -> None:
        self._whose = whose
        self._known = {name.lower(): name for name in known}
        self._problems: list[str] = []
        self._wrong: list[str] = []
        self.given: dict[str, str] = {}
        for name, value in raw.items():
            if name.lower() in self._known:
                self.given[self._known[name.lower()]] = value
            else:
                self.refuse(self._unknown(name), name)

    def __contains__(self, name: str) -> bool:
        return name in self.given

    def refuse(self, problem: str, *names: str) -> None:
        """Note what is wrong, and with which options."""
        self._problems.append(problem)
        self._wrong += names

    def tls(self) -> TLSFiles | None:
        """What `TLS_OPTIONS` say; None: connections are in clear."""
        ca_file, certificate_file, key_file = (self.text(name) or "" for name in TLS_OPTIONS)
        if not (ca_file or certificate_file or key_file):
            return None
        if not ca_file:
            self.refuse("tlsCertificateFile and tlsKeyFile need tlsCaFile", "tlsCaFile")
        elif bool(certificate_file) != bool(key_file):
            self.refuse(
                "tlsCertificateFile and tlsKeyFile go together: give both or neither",
                *("tlsCertificateFile", "tlsKeyFile"),
            )
        else:
            return TLSFiles(ca_file, certificate_file, key_file)
        return None

    def finish(self) -> None:
        """Say what was wrong.

        Raises:
            OptionError: with every problem there is, not just the first.
        """
        if self._problems:
            raise OptionError(
                f"{self._whose}: " + "; ".join(self._problems), dict.fromkeys(self._wrong)
            )

    def text(self, name: str) -> str | None:
        """The value as it is, or None."""
        return self.given.get(name)

    def names(self, name: str) -> list[str] | None:
        """Values separated by commas, without blanks around them; None if it is not given."""
        if name not in self.given:
            return None
        parts = [part.strip() for part in self.given[name].split(",") if part.strip()]
        if not parts:
            self.refuse(f"{name} is empty: leave it out to read everything", name)
        return parts

    def integer(self, name: str, *, at_least: int | None = None) -> int | None:
        """A whole number, or None."""
        given = self.given.get(name)
        if given is None:
            return None
        try:
            number = int(given)
        except ValueError:
            self.refuse(f"{name}={given!r}: expected a whole number", name)
            return None
        if at_least is not None and number < at_least:
            self.refuse(f"{name}={number}: at least {at_least}", name)
            return None
        return number

    def time_ms(self, name: str) -> int | None:
        """Milliseconds since 1970, or a time of ISO 8601; that of UTC if it names no zone."""
        text = self.given.get(name)
        if text is None:
            return None
        text = text.strip()
        if text.isdecimal() and len(text) <= len(str(2**63)) and int(text) < 2**63:
            return int(text)
        try:
            time = dt.datetime.fromisoformat(text)
        except ValueError:
            self.refuse(
                f"{name}={text!r}: expected milliseconds since 1970 or a time such as"
                " 2026-01-31T12:00:00+01:00",
                name,
            )
            return None
        if time.tzinfo is None:
            time = time.replace(tzinfo=dt.UTC)
        return int(time.timestamp() * 1000)

    def choice(self, name: str, allowed: Sequence[str]) -> str:
        """One of `allowed`, in lower case; the first if it is not given."""
        given = self.given.get(name, allowed[0]).lower()
        if given not in allowed:
            self.refuse(f"{name}={given!r}: expected {' or '.join(allowed)}", name)
            return allowed[0]
        return given

    def flag(self, name: str, *, default: bool) -> bool:
        """`true` or `false`."""
        allowed = ("true", "false") if default else ("false", "true")
        return self.choice(name, allowed) == "true"

    def _unknown(self, name: str) -> str:
        close = difflib.get_close_matches(name.lower(), self._known, 1)
        hint = f" (did you mean {self._known[close[0]]}?)" if close else ""
        return f"unknown option {name!r}{hint}, known are {', '.join(self._known.values())}"
