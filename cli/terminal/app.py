"""Format of every command's help, and the option --namespace of those that find brokers.

A flag is shown as `--detach`, and not as `--detach <bool>`.

An argument is shown as its name alone, without a type: TOPIC, FILE. An option's value is
shown as its metavar (SECONDS, NAME=VALUE), or N, PATH or TEXT by its type: typer's own names of
types change from version to version.

Every command with --bootstrap also has --namespace, which names a cluster that is up here. It
sets BRADBURY_NAMESPACE in the environment, so that all clients of the command find the same
cluster.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from ...discovery.state_file import BOOTSTRAP_VARIABLE, NAMESPACE_VARIABLE
from .options import ClusterName

TYPES = {"int": "N", "float": "N", "path": "PATH"}

Function = TypeVar("Function", bound=Callable[..., Any])


class App(typer.Typer):
    """Typer application with subcommands, whose help has this format."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(
            cls=_Group,
            pretty_exceptions_enable=False,
            context_settings={"help_option_names": ["-h", "--help"]},
            **settings,
        )

    def command(
        self, name: str | None = None, *, cls: type[TyperCommand] | None = None, **settings: Any
    ) -> Callable[[Function], Function]:
        register = super().command(name, cls=cls or _Command, **settings)

        def command(function: Function) -> Function:
            register(_as_registered(function))
            return function

        return command

    def callback(self, *arguments: Any, **settings: Any) -> Callable[[Function], Function]:
        register = super().callback(*arguments, **settings)

        def callback(function: Function) -> Function:
            register(_as_registered(function))
            return function

        return callback


class _Command(TyperCommand):
    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        pieces = [self.options_metavar or ""]
        for param in self.params:
            if param.param_type_name == "argument":
                name = param.metavar or str(param.name).upper()
                pieces.append(
                    (name if param.required else f"[{name}]") + "..." * (param.nargs != 1)
                )
        return pieces

    def format_help(self, ctx: Any, formatter: Any) -> None:
        _simplify(self.get_params(ctx))
        super().format_help(ctx, formatter)


class _Group(TyperGroup):
    def format_help(self, ctx: Any, formatter: Any) -> None:
        _simplify(self.get_params(ctx))
        super().format_help(ctx, formatter)


def _as_registered(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, with the option --namespace if it has --bootstrap."""
    names = inspect.signature(function).parameters
    return (
        _with_namespace(function) if "bootstrap" in names and "namespace" not in names else function
    )


def _with_namespace(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `function` with the parameter `namespace`, which applies while it runs and afterwards.

    main.run restores the environment at the end of the command line.
    """

    @functools.wraps(function)
    def with_namespace(*arguments: Any, namespace: str | None = None, **options: Any) -> Any:
        if namespace is not None:
            os.environ[NAMESPACE_VARIABLE] = namespace
            os.environ.pop(BOOTSTRAP_VARIABLE, None)  # the command line overrides the environment
        return function(*arguments, **options)

    own = inspect.signature(function, eval_str=True)
    added = inspect.Parameter(
        "namespace", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=ClusterName
    )
    signature = own.replace(parameters=[*own.parameters.values(), added])
    with_namespace.__dict__["__signature__"] = signature
    with_namespace.__annotations__ = {
        name: parameter.annotation for name, parameter in signature.parameters.items()
    }
    return with_namespace


def _simplify(params: Iterable[Any]) -> None:
    for param in params:
        if param.param_type_name == "argument":
            param.display_type_rich = _nothing
            param.metavar = param.metavar or str(param.name).upper()
        elif getattr(param, "is_flag", False):
            param.metavar = ""
        elif param.metavar is None:
            descriptor = getattr(param, "type_descriptor", None)  # older versions have `type`
            kind = str(param.type if descriptor is None else descriptor.annotation).lower()
            words = [word for name, word in TYPES.items() if name in kind]
            param.metavar = words[0] if words else "TEXT"


def _nothing(ctx: Any) -> None:
    """Replacement for the function that describes an argument's type: it returns nothing."""
