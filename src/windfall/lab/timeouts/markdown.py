"""Tables of the report in Markdown. Pure."""


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [" | ".join(head), " | ".join("---" for _ in head), *(" | ".join(row) for row in rows)]
    return "\n".join(f"| {line} |" for line in lines) + "\n"
