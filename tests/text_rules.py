"""Which strings of the source a person reads: calls, names and words that decide it."""

from __future__ import annotations

import re

WRITERS = (
    *("wizard/script.py", "wizard/report/plots.py", "wizard/formats/clusters.py"),
    *("wizard/formats/jobs.py", "wizard/formats/text.py"),
)
"""They write files: of these only what they tell a person."""
TOLD_BY = frozenset(
    {"Problem", "ProblemError", "SpecError", "ValueError", "_RefusedError", "error", "note"}
    | {"warning"}
)
NOT_FOR_PEOPLE = ("wizard/probe/nvml_calls.py", "wizard/widgets/theme.py")

_NO_TEXT_CALLS = """
getattr setattr hasattr query_one query Path open startswith endswith removeprefix
removesuffix compile fullmatch match search findall sub split rsplit partition rpartition
replace strip lstrip rstrip encode decode TypeVar import_module version add_class
set_class has_class remove_class index count find getenv glob rglob which run Popen strftime
run_worker parse_setting toggle_class is_relative_to field_validator
model_validator timedelta namedtuple create_task
"""
WITH_DEFAULT = frozenset({"get", "setdefault", "pop"})
"""Calls whose first argument is a key, and the second may be shown."""
NO_TEXT_CALLS = frozenset(_NO_TEXT_CALLS.split())
_NO_TEXT_KEYWORDS = """
id classes group key_display metavar dest action encoding errors mode pattern name prefix
suffix key style color marker table kind newline prog env cwd dir origin severity layout
variables where_key
"""
NO_TEXT_KEYWORDS = frozenset(_NO_TEXT_KEYWORDS.split())
NO_TEXT_NAMES = re.compile(
    r"(CSS|CSS_PATH|STYLE|POLICY|.*_CSS|__all__|HUB_ID|CALLS|SCHEMA|MODEL_CARD|.*_STYLES)$"
)
STYLE = re.compile(r"(bold|dim|italic|reverse|underline)?\s*\$[\w-]+$|bold$")
CODE = re.compile(
    r"\$\(|\$\{|^\s*#!|&&|</?\w+[ >/]|::|^-{1,2}\w[\w-]*$|^[\w./-]+\.(py|json|toml|sh|jsonl)$"
    r"|\\[a-z]|^%|;\s*\}|\w+\(\)$|^[\w.]+=[^ ]*$"
    r"|^(set -e|export \{0\}=\{1\}$|exec swift|# shellcheck|\{0\}accelerate launch)"
)
READS = re.compile(r"[A-Za-z]{2,}")
WORD = re.compile(r"[A-Za-z][A-Za-z'’.-]*$|[A-Z][\w-]+$|[A-Z][a-z]+/[a-z]+$")
GROUP = re.compile(r"\\([1-9])")
NAMED_FIELD = re.compile(r"(?<!\{)\{[a-z_]*(?::[^{}]*)?\}(?!\})")
"""What `str.format` fills in."""

PLURAL = "\1"
"""Stands where an `s` is for more than one."""

TITLED = {  # call → which of its arguments (by place or keyword) is a title or a label
    "Panel": (0, "title"),
    "Box": (0, "title"),
    "Sheet": (0,),
    "name_box": (1, 2),
    "Column": ("title",),
    "_number": (0, 3),
    "_text": (0,),
    "_key": (2, 3),
    "Binding": (2, "tooltip", "description"),
    "Compared": ("name",),
    "Metric": ("name",),
    "MemoryPart": (0, "name"),
    "Problem": ("what", "where", "fix"),
    "say": (0,),
    "TextBox": (0,),
    "_section": (0,),
    "_table": (0,),
    "_one": (0,),
    "_section_of_two": (0,),
    "_compared": (0,),
    "plot": (0,),
    "said": (0,),
    "counted": (1,),
    "add_argument_group": (0,),
    "add_subparsers": ("title",),
    "table": (0,),
    "Option": (0,),
    "_act": (0,),
    "Field": (1,),
    "StepHeader": (1,),
    "_in_words": (0,),
    "detail": (1,),
}
LABELLED = (  # files in which the first of a tuple is a label of what follows
    "wizard/overview.py",
    "wizard/modelcard.py",
    "wizard/advice.py",
    "wizard/widgets/",
    "wizard/screens/finish.py",
    "wizard/dashboard/now.py",
    "wizard/dashboard/faults.py",
    "wizard/report/__init__.py",
    "wizard/commands/",
    "wizard/dashboard/launching.py",
    "wizard/dashboard/ranks.py",
    "wizard/screens/preflight.py",
)
_WORD_LISTS = """
LABELS STAGES ORIGINS LINK_NAMES MARKS METHOD_REASONS NAMES MOVED MEANINGS STOP_CHOICES
WORDS EXIT_MEANING CAUSES PLACE titles RANK_TITLES MEANS GLOSSARY KINDS_OF_ROWS
"""
WORD_LISTS = frozenset(_WORD_LISTS.split())
"""Tables of words: their values, or all of them, are shown."""
_FRAGMENTS = """
yes no unknown none tight fits free over nothing you planner preset saved shipped training
saving evaluating loading fetching preparing starting wrapping done stopped failed running
lost finished quality fastest ok gated base instruct backward forward SILENT FAILED SLOW
FINISHED STOPPED STALE RUNNING STARTING BUSY LOST rendered raw error warning note info
slowest rank memory host compute communication row line least-memory fewest-devices stays tokens
recomputing messages alpaca preference kto text adapters attention optimizer offload reference
Pre-training inputs allocator context logits process weights gradients activations adapter loss
"""
FRAGMENTS = tuple(_FRAGMENTS.split())
"""Words that are ours wherever they stand alone for a value."""
SHORT = ("line {0}", "row {0}", "at least {0}", "or {0}", "or none", "Full {0}")
"""Texts put together where they are not read as one."""
TITLES = ("error",)
"""Titles of columns that elsewhere are another word."""
PLACES = (
    *("memory", "processors", "container", "packages", "links", "host", "software", "disks"),
    *("folders", "all-reduce", "all ranks", "runs here", "NVIDIA driver", "operating system"),
    *("composed machine", "test of the links", "preset {0}", "{0} of the preset {1}"),
    *("{0} (preset {1})", "eval_data, {0}", "{0}, line {1}", "{0}, row {1}", "runs on {0}"),
    *("{0} (runs)", "{0} (cache)", "card {0}", "NPU {0}, chip {1}"),
    *("ranks {0} and {1}", "devices {0} and {1}", "device {0} ({1})", "device {0}", "devices {0}"),
    *("{0} at http{1}", "{0} (hub cache)", "{0} (tmp)"),
)
"""Where a problem is, as far as that is in words of ours."""
_NOUNS = """
row step device rank checkpoint setting token warning layer file pack run block
shard byte
"""
NOUNS = (*_NOUNS.split(), "CPU rank", "weight file", "optimizer step")
OF_LIBRARIES = (
    # argparse
    "usage: ",
    "positional arguments",
    "options",
    "show this help message and exit",
    "show program's version number and exit",
    "one of the arguments {0} is required",
    "ignored explicit argument {0}",
    # the system's words for what went wrong with a file
    "No such file or directory",
    "Permission denied",
    "Is a directory",
    "Not a directory",
    "File exists",
    "Directory not empty",
    "Read-only file system",
    "No space left on device",
    "Disk quota exceeded",
    "Input/output error",
    "Too many open files",
    "File name too long",
    "Operation not permitted",
    "Device or resource busy",
    "Cannot allocate memory",
    "Invalid argument",
    "Invalid cross-device link",
    "Text file busy",
    "File too large",
    "Too many links",
    "Too many levels of symbolic links",
    "Argument list too long",
    "Exec format error",
    "Broken pipe",
    "Bad file descriptor",
    "Interrupted system call",
    "Resource temporarily unavailable",
    "Operation not supported",
    "Function not implemented",
    "No such process",
    "No such device",
    "No such device or address",
    "Stale file handle",
    "Remote I/O error",
    "Structure needs cleaning",
    "Transport endpoint is not connected",
    "Connection refused",
    "Connection reset by peer",
    "Connection timed out",
    "Network is unreachable",
    "No route to host",
    "Host is down",
    "Address already in use",
    "Cannot assign requested address",
    # pydantic, of a value that a setting does not take
    "input should be a valid number, unable to parse string as a number",
    "input should be a valid integer, unable to parse string as an integer",
    "input should be a valid integer, got a number with a fractional part",
    "input should be a valid boolean, unable to interpret input",
    "input should be a finite number",
    "input should be a valid string",
    "input should be greater than {0}",
    "input should be greater than or equal to {0}",
    "input should be less than {0}",
    "input should be less than or equal to {0}",
    "input should be {0}",
    # json, of a line that is none
    "Expecting ',' delimiter",
    "Expecting ':' delimiter",
    "Expecting value",
    "Expecting property name enclosed in double quotes",
    "Unterminated string starting at",
    "Extra data",
    "Invalid control character at",
    # Textual's palette
    "Open the command palette",
    "Search for commands…",
    "Theme",
    "Change the current theme",
    "Quit",
    "Quit the application as soon as possible",
    "Keys",
    "Show help for the focused widget and a summary of available keys",
    "Hide the keys and widget help panel",
    "Maximize",
    "Maximize the focused widget",
    "Minimize",
    "Minimize the widget and restore to normal size",
    "Screenshot",
    "Save an SVG 'screenshot' of the current screen",
)
