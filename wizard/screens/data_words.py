"""What the Data page says by itself: examples of rows, its help."""

from __future__ import annotations

from collections.abc import Mapping

HINT_READ = "Enter goes on to the plans. Letters are keys now; o or / names another file."
EXAMPLES = """What a row may look like (JSON Lines, JSON, CSV, Parquet; several files with commas):

{"messages": [{"role": "user", "content": "..."}, {"role": "assistant", "content": "..."}]}
{"instruction": "...", "input": "...", "output": "..."}
{"prompt": "...", "completion": "..."}

Other columns can be mapped: Tab, then m."""

HELP = (
    "What is between # marks is learnt, the rest is context: the engine's own code makes both, "
    "so what you see is what is trained. v changes between rendered, raw and tokens, n and p "
    "go through the first rows, c fixes the length at which rows are cut: from the one that cuts "
    "none to shorter ones, and back to the planner's. m says which column is which, "
    "e opens the editor at the marked problem, o goes back to the name of the file. Rows that "
    "cannot be used are dropped, each named by its line. Your file is not changed."
)
HELP_ON: Mapping[str, str] = {
    "data": "A file of rows, or several with commas: JSON Lines, JSON, CSV, Parquet, Arrow or "
    "text. Enter reads it, Down names the data files of this folder.",
    "sample": "One of the first rows. v: rendered is what the model sees, raw is the row of "
    "the file, tokens has one line a token. n and p go through the rows.",
    "bad": "Each row that cannot be used, with its line. e, or a click on the marked one, "
    "opens the editor there; the file is read again when it closes.",
}
