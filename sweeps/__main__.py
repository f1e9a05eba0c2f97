"""python -m sweeps run | resume | status | figure | track | report | plan | publish"""

import signal
import sys
import time

import experiments
from lvp.cli.main import add_tokenize, tokenize
from lvp.cli.parser import CORPORA, Parser, Refused, add_command, run_command, setting
from lvp.errors import InputError
from lvp.files import write_whole
from sweeps.driver import api, status, working_copy
from sweeps.driver.lock import driver
from sweeps.driver.manifest import Manifest
from sweeps.driver.options import Options


def _add_options(parser):
    parser.add_argument("--executor", default="ray", help="ray (default), or local to run without Ray")
    parser.add_argument("--ray-address", help="address of a running Ray cluster, or auto")
    parser.add_argument("--pack", type=int, help="lanes per program (default: measured on accelerators, 1 on CPU)")
    parser.add_argument("--threads", type=int, help="cores per worker on CPU (default: measured; 1 with --pack)")
    parser.add_argument(
        "--checkpoint-seconds", type=float, default=30.0, help="minimum time between checkpoints (default: 30)"
    )
    parser.add_argument(
        "--mesh",
        help="train each lane on a mesh of devices, such as fsdp=8 (default: one device); experimental with --hosts",
    )
    parser.add_argument(
        "--hosts",
        type=int,
        default=1,
        help="machines of the Ray cluster that share the mesh; experimental: tested on CPU processes only",
    )
    parser.add_argument(
        "--track", metavar="TOOL", help="show lanes while they train: tensorboard, wandb (offline) or mlflow"
    )
    parser.add_argument(
        "--allow-other-version",
        action="store_true",
        help="continue although versions, code, compiler flags or the machine changed since the sweep began",
    )
    parser.add_argument("--quiet", action="store_true", help="print errors only")


def _options(arguments):
    return Options(
        executor=arguments.executor,
        ray_address=arguments.ray_address,
        pack=arguments.pack,
        threads=arguments.threads,
        checkpoint_seconds=arguments.checkpoint_seconds,
        mesh=arguments.mesh,
        hosts=arguments.hosts,
        allow_other_version=arguments.allow_other_version,
        track=arguments.track,
    )


def _run(arguments):
    config = dict(setting(s) for s in arguments.set)
    if arguments.corpus:
        config["corpus"] = arguments.corpus
    api.start(
        _experiment(arguments.experiment, arguments.rule),
        arguments.tier,
        config,
        out=arguments.out,
        options=_options(arguments),
        dry_run=arguments.dry_run,
        measure=arguments.measure,
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


def _resume(arguments):
    api.resume(arguments.dir, options=_options(arguments), quiet=arguments.quiet)


def _status(arguments):
    with working_copy.opened(arguments.dir) as folder:
        while True:
            text = status.text(Manifest.read(folder))
            print(f"\033[H\033[2J{text}" if arguments.watch and sys.stdout.isatty() else text, flush=True)
            if not arguments.watch or not driver(folder):
                return
            time.sleep(arguments.watch)
            working_copy.pull(folder)


def _figure(arguments):
    from sweeps.reporting import results

    with working_copy.opened(arguments.dir) as folder:
        manifest = Manifest.read(folder)
        if arguments.experiment is not None:
            manifest = manifest.with_file(arguments.experiment)
        results.draw(manifest, say=lambda *lines: print(*lines, sep="\n"))
        working_copy.push(folder)


def _track(arguments):
    api.track(arguments.dir, arguments.track)


def _report(arguments):
    from sweeps.reporting import results

    if arguments.html is None:
        if arguments.dir is not None:
            raise InputError(f"report {arguments.dir} needs --html FILE.html; `figure` draws its table and figure")
        print(results.write_report())
        return
    if arguments.dir is None:
        content = results.committed_page()
    else:
        with working_copy.opened(arguments.dir) as folder:
            content = results.sweep_page(Manifest.read(folder))
    write_whole(arguments.html, content)
    print(arguments.html)


def _tokenize(arguments):
    from sweeps.executors.encoding import on_cluster  # the other commands work without Ray

    tokenize(arguments, on_cluster(arguments.ray_address, arguments.workers))


def _publish(arguments):
    from sweeps.reporting import results

    print(results.publish(arguments.dir, arguments.suffix))


def _add_run_options(run):
    run.add_argument("experiment", help=f"one of: {', '.join(experiments.NAMES)}; or a file of yours, FILE.py")
    run.add_argument("--tier", default="laptop", help="smoke, laptop (default), workstation, gpu or paper")
    run.add_argument("--corpus", help=CORPORA)
    run.add_argument(
        "--out",
        help="directory of the sweep, or s3://BUCKET/PREFIX or gs://BUCKET/PREFIX (default: runs/EXPERIMENT-TIER-HASH)",
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
    run.add_argument(
        "--measure",
        action="store_true",
        help="with --dry-run: train some steps of every cell for a more accurate forecast",
    )
    run.add_argument("--budget", metavar="TIME", help="refuse a sweep with a longer forecast, such as 45m or 2h")
    run.add_argument(
        "--reuse",
        metavar="RECORDS",
        help="records of another sweep, a file (.jsonl, .jsonl.gz) or DIR/records; their lanes are not trained again",
    )
    _add_options(run)


def parser() -> Parser:
    top = Parser(prog="python -m sweeps", description="Run experiments and draw their results.", allow_abbrev=False)
    subparsers = top.add_subparsers(dest="command", required=True, parser_class=Parser)

    def add(name, function, help):
        return add_command(subparsers, name, function, help)

    _add_run_options(add("run", _run, "run an experiment, or continue an earlier run in its directory"))
    again = add("resume", _resume, "continue the sweep in a directory")
    again.add_argument("dir")
    _add_options(again)
    for option, kept in {
        "--tier": "tier",
        "--corpus": "corpus",
        "--set": "configuration",
        "--out": "directory",
        "--rule": "rule",
    }.items():
        again.add_argument(option, action=Refused, reason=f"resume keeps the sweep's {kept}; use run to change it")
    status_parser = add("status", _status, "print the lanes of a sweep by state, and the time left")
    status_parser.add_argument("dir")
    status_parser.add_argument("--watch", type=float, metavar="SECONDS", help="print every SECONDS while a driver runs")
    figure = add("figure", _figure, "draw the table and the figure of a sweep's finished lanes")
    figure.add_argument("dir")
    figure.add_argument(
        "--experiment", metavar="FILE.py", help="draw with the present content of the user's experiment file"
    )
    track = add("track", _track, "write the runs of a sweep's finished lanes for a tracking tool")
    track.add_argument("dir")
    track.add_argument("--track", metavar="TOOL", default="tensorboard", help="tensorboard (default), wandb or mlflow")
    report = add("report", _report, "rewrite README, docs and evidence from committed results; redraw changed figures")
    report.add_argument("dir", nargs="?", help="with --html: the directory of a sweep (default: the committed results)")
    report.add_argument("--html", metavar="FILE.html", help="write the results to this HTML file instead")
    add_tokenize(subparsers, _tokenize).add_argument(
        "--ray-address",
        required=True,
        metavar="HOST:PORT",
        help="encode on this Ray cluster, whose machines see the text at the same path; auto on its head",
    )
    publish = add("publish", _publish, "copy a finished sweep's records into experiments/results/")
    publish.add_argument("dir")
    publish.add_argument(
        "--suffix", default="", metavar="WORD", help="a further word in the result's name, beside tier and corpus"
    )
    return top


def _ignore_interrupts() -> None:
    """Ignores further interrupts, which could suppress the message about the first one."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def main(argv: list[str] | None = None) -> int:
    """Returns 0 for success; 1 for failed lanes, failed tracking, an error of the machine or lost standard output; 2
    for unusable input; 130 after an interrupt."""
    # SIGTERM and SIGHUP interrupt as Ctrl-C does, so that finished lanes are drawn.
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # ignored under nohup
            signal.signal(number, signal.default_int_handler)
    return run_command(parser(), argv, on_interrupt=_ignore_interrupts)


if __name__ == "__main__":
    sys.exit(main())
