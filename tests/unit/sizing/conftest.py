"""The command line of the sizing verbs."""

from __future__ import annotations

import json

import pytest

from tracekit.cli.shell import app as cli


@pytest.fixture
def said(capsys):
    """Return a function from a command line to its exit code, standard output and error."""

    def call(*words):
        code = cli.call([str(word) for word in words])
        out, error = capsys.readouterr()
        return code, out, error

    return call


@pytest.fixture
def answered(said):
    """Return a function from a command line to its JSON answer."""

    def call(*words):
        code, out, error = said(*words, "--format", "json")
        assert (code, error) == (0, "")
        return json.loads(out)

    return call
