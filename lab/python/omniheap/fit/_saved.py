"""Files of JSON with a version, which are there whole or not at all. Needs neither PyTorch nor the library."""

import json
import os

from .._library import OmniheapError


def write(path, text):
    """Writes a file beside its place and puts it there once it is whole: what was there before is not lost half-way."""
    part = f"{os.fspath(path)}.{os.getpid()}.part"
    try:
        file = open(part, "w", encoding="utf-8")
    except OSError as error:
        raise OmniheapError(f"{os.fspath(path)} cannot be written ({error.strerror}); name a file in a folder that exists and may be written to") from None
    try:
        with file:
            file.write(text)
        os.replace(part, path)
    except BaseException:
        if os.path.exists(part):
            os.remove(part)
        raise


def read(path, versions, make, wrong):
    """Reads a file of one of these versions, and returns what `make` makes of it.

    wrong: says what the file is not; what to do follows the reason.
    """
    is_not, what_to_do = wrong
    with open(path, encoding="utf-8") as file:
        try:
            saved = json.load(file)
            if saved["version"] not in versions:
                raise ValueError(f"version {saved['version']}")
            return make(saved)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise OmniheapError(f"{path} {is_not} of version {versions[-1]} ({error}); {what_to_do}") from None
