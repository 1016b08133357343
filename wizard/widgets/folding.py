"""Lines of wide characters → lines that end between two of them, as readers of Chinese expect."""

from __future__ import annotations

from textual.content import Content

from wizard import wording


def folded(content: Content, width: int) -> Content:
    """The same text with line ends of its own where it holds wide characters and is too long.

    The toolkit ends lines at blanks alone, of which a sentence in Chinese has few.
    """
    signs = content.plain.replace("\n", "")
    if width < 2 or wording.cells(signs) == len(signs):
        return content
    lines = []
    for line in content.split("\n", allow_blank=True):
        lines += [line] if wording.cells(line.plain) <= width else _folded(line, width)
    return Content("\n").join(lines)


def _folded(line: Content, width: int) -> list[Content]:
    ends, begin = [], 0
    for piece in wording.PIECES.finditer(line.plain):
        so_far = line.plain[begin : piece.end()].rstrip()
        if piece.start() > begin and wording.cells(so_far) > width:
            begin = piece.start()
            ends.append(begin)
    return [part.rstrip() for part in line.divide(ends)] if ends else [line]
