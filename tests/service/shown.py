"""What tests measure is shown after the run, also when nothing failed: `figure: ...`, which scripts/test looks for."""
import pytest


@pytest.fixture
def figure(record_property):
    """A function that notes what was measured."""
    return lambda text: record_property("figure", text)


def show(terminalreporter):
    """All figures, whichever process measured them."""
    for report in terminalreporter.getreports("passed"):
        for name, text in report.user_properties:
            if name == "figure":
                terminalreporter.write_line(f"figure: {text}")
