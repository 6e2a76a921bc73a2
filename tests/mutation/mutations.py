"""Small changes to a module's source that a test should notice: one change is one Mutation.

    comparison   `<` for `<=`, `==` for `!=`, `is` for `is not`, `in` for `not in`, and back
    condition    one side of `and`/`or`, or a `not`, is left out; an `if` is never or always taken
    bound        one side of min(a, b) or max(a, b) alone
    number       one more in a comparison or a sum; `+` for `-` and back
    dropped      a statement that does something (a call, an assignment to state, a raise) is not there
    swapped      two such statements, one after the other, change places

The last two are about order: append before answer, fsync before promise. What only speaks (log
lines, messages of errors), checks itself (assert) or says what a thing is (annotations, defaults,
constants of the module, an object's first state) is left alone. A mutation's id depends on the function it is in, without
its texts, and not on the line number, so it stays the same while other parts of a file, or words, change.
"""

from __future__ import annotations

import ast
import copy
import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

OTHER_COMPARISON: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}
SPEAKING = {"logger", "report", "info", "warning", "error", "debug", "exception", "note"}
SPEAKING_FUNCTIONS = {"__repr__", "__str__"}


@dataclass(frozen=True, slots=True)
class Mutation:
    """Replaces characters [start, end) of a module's text by `text`."""

    path: str
    """The path from the package's root, with slashes."""
    line: int
    function: str
    kind: str
    start: int
    end: int
    text: str
    before: str
    """What was there."""
    mutation_id: str

    def apply(self, source: str) -> str:
        return source[: self.start] + self.text + source[self.end :]


def mutations_of(path: str, source: str) -> list[Mutation]:
    """All that can be made of one module, in the order of its lines."""
    finder = _Finder(path, source)
    finder.visit(ast.parse(source))
    return sorted(finder.found, key=lambda each: (each.start, each.end, each.kind, each.text))


class _Finder(ast.NodeVisitor):
    def __init__(self, path: str, source: str) -> None:
        self.found: list[Mutation] = []
        self._path = path
        self._source = source
        self._line_starts = [0]
        for line in source.splitlines(keepends=True):
            self._line_starts.append(self._line_starts[-1] + len(line.encode()))
        self._bytes = source.encode()
        self._names: list[str] = []
        self._function: ast.AST | None = None
        self._ids: set[str] = set()
        self._counts: Counter[tuple[str, str, str, str]] = Counter()
        """How many of each kind, in the same words, each function has so far."""

    # --- where things are ------------------------------------------------------------------------

    def _place(self, line: int, column: int) -> int:
        """The place in characters; ast counts bytes."""
        return len(self._bytes[: self._line_starts[line - 1] + column].decode())

    def _span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start = self._place(node.lineno, node.col_offset)
        return start, self._place(node.end_lineno, node.end_col_offset)

    def _text(self, node: ast.expr | ast.stmt) -> str:
        start, end = self._span(node)
        return self._source[start:end]

    def _add(self, kind: str, line: int, span: tuple[int, int], text: str) -> None:
        if self._function is None:
            return
        start, end = span
        before = self._source[start:end]
        if text == before:
            return
        place = (".".join(self._names), before, text, kind)
        self._counts[place] += 1
        known = "\0".join(
            (self._path, *place, _without_texts(self._function), str(self._counts[place]))
        )
        mutation_id = hashlib.sha256(known.encode()).hexdigest()[:12]
        if mutation_id not in self._ids:
            self._ids.add(mutation_id)
            self.found.append(
                Mutation(
                    self._path,
                    line,
                    ".".join(self._names),
                    kind,
                    start,
                    end,
                    text,
                    before,
                    mutation_id,
                )
            )

    # --- what is visited -------------------------------------------------------------------------

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._names.append(node.name)
        for statement in node.body:
            if isinstance(statement, ast.FunctionDef | ast.ClassDef):
                self.visit(statement)
        self._names.pop()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if node.name in SPEAKING_FUNCTIONS:
            return
        outer = self._function
        self._names.append(node.name)
        self._function = outer or node
        self._visit_block(node.body)
        self._function = outer
        self._names.pop()

    def _visit_block(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            self._drop(statement)
            self.visit(statement)
        for first, second in zip(statements, statements[1:], strict=False):
            self._swap(first, second)

    def generic_visit(self, node: ast.AST) -> None:
        for name, value in ast.iter_fields(node):
            if name in {"annotation", "returns", "decorator_list", "type_ignores"}:
                continue
            if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                self._visit_block(value)
            elif isinstance(value, list):
                for each in value:
                    if isinstance(each, ast.AST):
                        self.visit(each)
            elif isinstance(value, ast.AST):
                self.visit(value)

    def visit_Assert(self, node: ast.Assert) -> None:
        pass

    def visit_Raise(self, node: ast.Raise) -> None:
        pass

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        pass

    def visit_Expr(self, node: ast.Expr) -> None:
        if not _speaks(node):
            self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        span = self._span(node.test)
        self._add("condition", node.lineno, span, "False")
        if not node.orelse:
            self._add("condition", node.lineno, span, "True")
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._add("condition", node.lineno, self._span(node.test), "False")
        self._add("condition", node.lineno, self._span(node.test), "True")
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        word = " and " if isinstance(node.op, ast.And) else " or "
        for left_out in node.values:
            rest = [f"({self._text(each)})" for each in node.values if each is not left_out]
            self._add("condition", left_out.lineno, self._span(node), f"({word.join(rest)})")
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self._add("condition", node.lineno, self._span(node), f"({self._text(node.operand)})")
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        sides = [node.left, *node.comparators]
        for number, operator in enumerate(node.ops):
            span = self._span(sides[number])[1], self._span(sides[number + 1])[0]
            between = self._source[span[0] : span[1]]
            opening, closing = between.count("("), between.count(")")
            other = f"{')' * closing} {OTHER_COMPARISON[type(operator)]} {'(' * opening}"
            self._add("comparison", sides[number + 1].lineno, span, other)
        for side in sides:
            self._one_more(side)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if isinstance(node.op, ast.Add | ast.Sub) and not _is_text(node):
            sign = "-" if isinstance(node.op, ast.Add) else "+"
            span = self._span(node.left)[1], self._span(node.right)[0]
            between = self._source[span[0] : span[1]]
            opening, closing = between.count("("), between.count(")")
            self._add("number", node.lineno, span, f"{')' * closing} {sign} {'(' * opening}")
            self._one_more(node.right)
        self.generic_visit(node)

    def _one_more(self, node: ast.expr) -> None:
        if isinstance(node, ast.Constant) and type(node.value) is int:
            self._add("number", node.lineno, self._span(node), str(node.value + 1))

    def visit_Call(self, node: ast.Call) -> None:
        is_bound = isinstance(node.func, ast.Name) and node.func.id in {"min", "max"}
        is_starred = any(isinstance(each, ast.Starred) for each in node.args)
        if is_bound and len(node.args) == 2 and not node.keywords and not is_starred:
            for kept in node.args:
                self._add("bound", node.lineno, self._span(node), f"({self._text(kept)})")
        self.generic_visit(node)

    # --- order -----------------------------------------------------------------------------------

    @property
    def _is_in_constructor(self) -> bool:
        """There the type checker sees what is missing."""
        return self._names[-1:] == ["__init__"]

    def _drop(self, statement: ast.stmt) -> None:
        if self._is_in_constructor:
            return
        if _acts(statement) or isinstance(statement, ast.Raise):
            self._add("dropped", statement.lineno, self._span(statement), "pass")

    def _swap(self, first: ast.stmt, second: ast.stmt) -> None:
        if self._is_in_constructor or not (_acts(first) and _acts(second)):
            return
        if _is_plain(first) and _is_plain(second):
            return  # in either order it is the same
        start, between = self._span(first)
        after, end = self._span(second)
        text = self._text(second) + self._source[between:after] + self._text(first)
        self._add("swapped", first.lineno, (start, end), text)


def _acts(statement: ast.stmt) -> bool:
    """It changes something that outlives the function, or asks for it."""
    match statement:
        case ast.Expr(value=ast.Call()):
            return not _speaks(statement)
        case ast.Assign(targets=targets):
            return any(map(_is_state, targets))
        case ast.AugAssign(target=target):
            return _is_state(target)
        case ast.Delete():
            return True
    return False


def _is_plain(statement: ast.stmt) -> bool:
    """It gives a constant, an argument or the like to an attribute, or empties something of its own."""
    match statement:
        case ast.Assign(targets=[ast.Attribute()], value=ast.Constant() | ast.Name()):
            return True
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr="clear"), args=[])):
            return True
    return False


def _is_state(target: ast.expr) -> bool:
    if isinstance(target, ast.Tuple):
        return any(map(_is_state, target.elts))
    return isinstance(target, ast.Attribute | ast.Subscript)


def _speaks(statement: ast.Expr) -> bool:
    """A docstring, a line for the log, a report."""
    if not isinstance(statement.value, ast.Call):
        return True
    names = {
        each.attr for each in ast.walk(statement.value.func) if isinstance(each, ast.Attribute)
    }
    names |= {each.id for each in ast.walk(statement.value.func) if isinstance(each, ast.Name)}
    return bool(names & SPEAKING)


def _is_text(node: ast.BinOp) -> bool:
    return any(
        isinstance(each, ast.JoinedStr | ast.List | ast.Tuple)
        or (isinstance(each, ast.Constant) and isinstance(each.value, str | bytes))
        for each in _parts(node)
    )


def _parts(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.BinOp):
        yield from _parts(node.left)
        yield from _parts(node.right)
    else:
        yield node


class _Texts(ast.NodeTransformer):
    """Empties strings that have a space in them: docstrings, messages."""

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        if isinstance(node.value, str) and " " in node.value:
            return ast.copy_location(ast.Constant(""), node)
        return node


def _without_texts(function: ast.AST) -> str:
    return ast.unparse(_Texts().visit(copy.deepcopy(function)))
