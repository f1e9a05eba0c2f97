"""python -m lvp.sweeps run | resume | status | figure | track | report | tokenize | publish"""

import argparse
import os
import signal
import sys


def _end_at_once(*_: object) -> None:
    """Ends the process in one line: the imports below take seconds, in which nothing has begun."""
    os.write(2, b"sweeps: interrupted\n")
    os._exit(130)


if __name__ == "__main__":
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, _end_at_once)

try:
    from lvp import experiments
    from lvp.cli.main import add_tokenize, tokenize
    from lvp.cli.parser import CORPORA, Parser, Refused, add_command, key_value, run_command
    from lvp.errors import InputError
    from lvp.files import write_whole
    from lvp.sweeps import commands, driver
except ModuleNotFoundError as _error:
    print(f"sweeps: {_error}; sweeps needs the extra lab: pip install 'lvp[lab]'", file=sys.stderr)
    sys.exit(2)


def _add_options(parser):
    parser.add_argument(
        "--executor", default="ray", help="ray (default), local (processes without Ray) or inline (this process)"
    )
    parser.add_argument("--ray-address", help="address of a running Ray cluster, or auto")
    parser.add_argument("--pack", type=int, help="runs per program (default: 1 on CPU, by the model's size otherwise)")
    parser.add_argument("--threads", type=int, help="cores per worker on CPU (default: 1, or more if runs are few)")
    parser.add_argument(
        "--checkpoint-seconds", type=float, default=30.0, help="minimum time between checkpoints (default: 30)"
    )
    parser.add_argument("--mesh", help="train each run on all devices of a machine, such as fsdp=8")
    parser.add_argument(
        "--keep-weights",
        action=argparse.BooleanOptionalAction,
        help="keep the parameters of finished runs in weights/ (default: as the experiment says; pretrain_1b does)",
    )
    parser.add_argument("--track", metavar="TOOL", help="show runs while they train: tensorboard, wandb or mlflow")
    parser.add_argument(
        "--allow-other-version",
        action="store_true",
        help="continue although versions, code, flags, packing or the machine changed since the sweep began",
    )
    parser.add_argument("--quiet", action="store_true", help="print errors only")


def _options(arguments):
    names = driver.Options.__dataclass_fields__
    return driver.Options(**{name: getattr(arguments, name) for name in names})


def _run(arguments):
    config = dict(key_value(s) for s in arguments.set)
    if arguments.corpus:
        if config.get("corpus", arguments.corpus) != arguments.corpus:
            raise InputError(f"--set corpus={config['corpus']} contradicts --corpus {arguments.corpus}: omit one")
        config["corpus"] = arguments.corpus
    driver.run(
        _experiment(arguments.experiment, arguments.rule),
        arguments.preset,
        config=config,
        out=arguments.out,
        options=_options(arguments),
        dry_run=arguments.dry_run,
        budget=arguments.budget,
        reuse=arguments.reuse,
        quiet=arguments.quiet,
    )


def _experiment(name, rule):
    """The experiment to run: a name, or the path of a file."""
    if rule is None:
        return name
    if name != "leaderboard" or not rule.endswith(".py"):
        raise InputError(
            f"--rule {rule}: use `run leaderboard --rule FILE.py`, where FILE.py defines rule(width, vocab)"
        )
    return rule


def _report(arguments):
    from lvp.sweeps import committed  # pandas, SciPy and matplotlib, which the other commands do not need

    if arguments.dir is None:
        if arguments.html is not None:
            raise InputError("--html needs the directory of a sweep")
        print(committed.write_report())
    elif arguments.html is None:
        raise InputError(f"report {arguments.dir} needs --html FILE.html; `figure` draws its table and figure")
    else:
        write_whole(arguments.html, commands.page(arguments.dir, arguments.experiment))
        print(arguments.html)


def _tokenize(arguments):
    from lvp.sweeps.encoding import on_cluster  # the other commands work without Ray

    tokenize(arguments, on_cluster(arguments.ray_address, arguments.workers))


def _add_run_options(run):
    run.add_argument("experiment", help=f"one of: {', '.join(experiments.NAMES)}; or a file of yours, FILE.py")
    run.add_argument("--preset", default="laptop", help="smoke, laptop (default), workstation, gpu or paper")
    run.add_argument("--corpus", help=CORPORA)
    run.add_argument(
        "--out",
        help="directory, or s3://BUCKET/PREFIX or gs://BUCKET/PREFIX (default: runs/EXPERIMENT-PRESET-HASH)",
    )
    run.add_argument(
        "--set", nargs="+", action="extend", default=[], metavar="KEY=VALUE", help="values of the configuration"
    )
    run.add_argument(
        "--rule",
        metavar="FILE.py",
        help="a rule of yours for the leaderboard: a file with a function rule(width, vocab)",
    )
    run.add_argument("--dry-run", action="store_true", help="print the cost forecast and exit")
    run.add_argument("--budget", metavar="TIME", help="refuse a sweep with a longer forecast, such as 45m or 2h")
    run.add_argument(
        "--reuse",
        metavar="DIR",
        help="directory or records (.jsonl, .jsonl.gz) of another sweep; its runs are not trained again",
    )
    _add_options(run)


def _add_experiment(command):
    command.add_argument("--experiment", metavar="FILE.py", help="the file of a user's experiment, which is executed")


def parser() -> Parser:
    top = Parser(prog="python -m lvp.sweeps", description="Run experiments and draw their results.", allow_abbrev=False)
    subparsers = top.add_subparsers(dest="command", required=True, parser_class=Parser)

    def add(name, function, help):
        return add_command(subparsers, name, function, help)

    _add_run_options(add("run", _run, "train the runs of an experiment that have no record in its directory"))
    again = add(
        "resume",
        lambda a: driver.resume(a.dir, options=_options(a), experiment=a.experiment, quiet=a.quiet),
        "train the runs without a record of the sweep in a directory",
    )
    again.add_argument("dir")
    _add_experiment(again)
    _add_options(again)
    for option in ("--preset", "--corpus", "--set", "--out", "--rule", "--reuse", "--budget"):
        again.add_argument(option, action=Refused, reason="resume continues a sweep as it began; use run")
    status = add("status", lambda a: print(commands.status(a.dir)), "print the runs of a sweep by state")
    status.add_argument("dir")
    figure = add(
        "figure",
        lambda a: commands.figure(a.dir, a.experiment),
        "draw the table and the figure of a sweep's finished runs",
    )
    figure.add_argument("dir")
    _add_experiment(figure)
    track = add("track", lambda a: commands.track(a.dir, a.track), "write a sweep's finished runs for a tracking tool")
    track.add_argument("dir")
    track.add_argument("--track", metavar="TOOL", default="tensorboard", help="tensorboard (default), wandb or mlflow")
    report = add("report", _report, "rewrite README and docs from committed results; redraw changed figures")
    report.add_argument("dir", nargs="?", help="with --html: the directory of a sweep")
    report.add_argument("--html", metavar="FILE.html", help="write the results of DIR to this HTML file")
    _add_experiment(report)
    add_tokenize(subparsers, _tokenize).add_argument(
        "--ray-address",
        required=True,
        metavar="HOST:PORT",
        help="encode on this Ray cluster, whose machines see the text at the same path; auto on its head",
    )
    publish = add(
        "publish",
        lambda a: print(commands.publish(a.dir, a.suffix)),
        "copy a finished sweep's records into experiments/results/",
    )
    publish.add_argument("dir")
    publish.add_argument(
        "--suffix", default="", metavar="WORD", help="a further word in the result's name, beside preset and corpus"
    )
    return top


def _ignore_interrupts() -> None:
    """Ignores further interrupts, which could suppress the message about the first one."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def main(argv: list[str] | None = None) -> int:
    """Runs a command and returns the exit code.

    Returns:
      0 for success; 1 for failed runs, an error of the machine or lost standard output; 2 for unusable input; 130 after
      an interrupt.
    """
    # SIGTERM and SIGHUP interrupt as Ctrl-C does, so that finished runs are drawn.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # ignored under nohup
            signal.signal(number, signal.default_int_handler)
    return run_command(parser(), argv, on_interrupt=_ignore_interrupts)


if __name__ == "__main__":
    sys.exit(main())
