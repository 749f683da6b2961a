"""`windfall boinc`: volunteers' machines as hosts, by the standard BOINC client. Touches the terminal."""

from __future__ import annotations

from pathlib import Path

import click

from windfall.api.about import AccountWithKey
from windfall.cli.options import Place, json_option, place_options
from windfall.cli.show.output import moment, note, print_json, print_table
from windfall.client import Client
from windfall.client.local.server import LocalServer, state_location
from windfall.errors import BadInput

POOL = "boinc"

_pool_option = click.option("--pool", default=POOL, show_default=True, metavar="NAME", help="The pool of volunteers.")


@click.group()
def boinc() -> None:
    """Volunteers: machines that run the standard BOINC client, as hosts of a pool.

    \b
    Examples:
      windfall boinc enable --url http://volunteers.example.org:7272/grid/
      windfall boinc add-account Ada
      windfall boinc show
    """


def _client(place: Place) -> Client:
    """The front may be enabled before the first start of a server, so the state may be new."""
    if place.address:
        return place.open()
    return Client(local=LocalServer(state_location(place.state), worker=False))


@boinc.command()
@click.option("--url", required=True, metavar="URL", help="What volunteers attach to: http://HOST:PORT/NAME/.")
@click.option("--project", default="Windfall", show_default=True, metavar="NAME", help="What clients call it.")
@click.option("--ask-again", default="10m", show_default=True, metavar="TIME", help="Idle clients ask again after it.")
@click.option("--deadline", default="7d", show_default=True, metavar="TIME", help="Of reports, until more is known.")
@click.option("--least-deadline", default="1d", show_default=True, metavar="TIME", help="No deadline is shorter.")
@click.option("--most-upload", default="256M", show_default=True, metavar="SIZE", help="Outputs of one workunit.")
@click.option(
    "--validator", "validators", multiple=True, metavar="NAME=COMMAND", help="Judges results of jobs that say NAME."
)
@_pool_option
@place_options
@json_option
def enable(
    url: str, project: str, ask_again: str, deadline: str, least_deadline: str, most_upload: str,
    validators: tuple[str, ...], pool: str, place: Place, as_json: bool,
) -> None:  # fmt: skip
    """Give the server a front for BOINC clients, on a path of its own. Makes the signing key and the launcher."""
    entry = {
        "name": pool, "kind": "boinc", "limit": 100_000, "url": url, "project": project, "ask_again": ask_again,
        "deadline": deadline, "least_deadline": least_deadline, "most_upload": most_upload,
        "validators": dict(_pair(text) for text in validators),
    }  # fmt: skip
    with _client(place) as client:
        client.add_pools([entry])
        shown = client.tell_front(pool, "show")
    if as_json:
        print_json(shown)
        return
    click.echo(f"volunteers attach to {url}")
    note(f"  let one in:  windfall boinc add-account NAME{place.words}")
    note(f"  jobs for them: windfall submit --quorum 2 ...   end it: windfall pool remove {pool}{place.words}")


def _pair(text: str) -> tuple[str, str]:
    name, equals, command = text.partition("=")
    if not equals:
        raise BadInput(f"--validator {text}: there is no '='", hint="as in --validator round=/opt/grid/round.py")
    return name, command


@boinc.command()
@_pool_option
@place_options
@json_option
def show(pool: str, place: Place, as_json: bool) -> None:
    """Show the front: address, launcher, and the accounts of volunteers with their hosts and credit."""
    with place.open() as client:
        shown = client.tell_front(pool, "show")
    if as_json:
        print_json(shown)
        return
    click.echo(f"{shown['project']} at {shown['url']}, pool {shown['pool']}")
    where = "on this server" if shown["key_is_here"] else "not on this server"
    click.echo(f"launcher {shown['launcher']['file']}, MD5 {shown['launcher']['md5']}; the signing key is {where}")
    if shown["accounts"]:
        print_table(
            ["account", "name", "hosts", "done", "credit", "since", "remark"],
            (
                [row["account"], row["name"], row["hosts"], row["done"], f"{row['credit']:.2f}",
                 moment(row["created_s"]), "closed" if row["closed"] else ""]
                for row in shown["accounts"]
            ),
        )  # fmt: skip


@boinc.command("add-account")
@click.argument("name")
@click.option("--show-name", is_flag=True, help="The volunteer agrees that the console shows this name.")
@click.option("--while-busy", is_flag=True, help="The volunteer agrees that busy machines run tasks, too.")
@_pool_option
@place_options
@json_option
def add_account(name: str, show_name: bool, while_busy: bool, pool: str, place: Place, as_json: bool) -> None:
    """Make an account for a volunteer, and print its key."""
    with place.open() as client:
        made = client.tell_front(pool, "add-account", name=name, shows_name=show_name, while_busy=while_busy)
    _print_key(made, as_json)


def _print_key(made: AccountWithKey, as_json: bool) -> None:
    if as_json:
        print_json(made)
        return
    click.echo(made["key"])
    note(f"account {made['account']}; the volunteer says: boinccmd --project_attach {made['url']} {made['key']}")


@boinc.command("close-account")
@click.argument("account", type=int)
@_pool_option
@place_options
@json_option
def close_account(account: int, pool: str, place: Place, as_json: bool) -> None:
    """Close an account: its clients get no more tasks, and those that they hold go to other hosts."""
    with place.open() as client:
        row = client.tell_front(pool, "close", account=account)
    if as_json:
        print_json(row)
    else:
        click.echo(f"account {account} is closed")


@boinc.command()
@click.option("--uses", type=click.IntRange(1, 10_000), default=1, show_default=True, help="Accounts that it makes.")
@_pool_option
@place_options
@json_option
def invite(uses: int, pool: str, place: Place, as_json: bool) -> None:
    """Make a code with which volunteers create accounts by e-mail and password."""
    with place.open() as client:
        made = client.tell_front(pool, "invite", uses=uses)
    if as_json:
        print_json(made)
        return
    click.echo(made["code"])
    note(f"{made['url']}create_account.php?invite_code={made['code']}&email_addr=...; it is not shown again")


@boinc.command("rotate-key")
@click.option("--account", type=click.IntRange(1), metavar="NUMBER", help="Give this account another key instead.")
@_pool_option
@place_options
@json_option
def rotate_key(account: int | None, pool: str, place: Place, as_json: bool) -> None:
    """Make another signing key; clients accept it because the old one has signed it.

    With --account: the old key of the account is worthless at once.
    """
    with place.open() as client:
        if account is not None:
            _print_key(client.tell_front(pool, "new-key", account=account), as_json)
            return
        shown = client.tell_front(pool, "rotate")
    if as_json:
        print_json(shown)
    else:
        click.echo(f"the launcher is signed with a new key: {shown['launcher']['file']}")


@boinc.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--key", required=True, type=click.Path(path_type=Path), help="The private key; made if there is none.")
@click.option("--launcher", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Sign this file.")
@click.option("--rotate", is_flag=True, help="Make another key, signed by the one that is there.")
@json_option
def sign(folder: Path, key: Path, launcher: Path | None, rotate: bool, as_json: bool) -> None:
    """Sign the launcher on a machine that is not the server, so that the server never has the private key.

    FOLDER gets what the server needs, without the key: copy it to pools/boinc of the server's state. The launcher is
    compiled here, unless --launcher names one that was compiled elsewhere.
    """
    from windfall.boinc.keys import Keys

    if key.resolve().is_relative_to(folder.resolve()):
        raise BadInput(f"--key {key} lies in {folder}, which goes to the server", hint="keep the key elsewhere")
    if rotate and launcher is not None:
        raise BadInput(
            "--rotate signs the launcher that was signed before", hint="leave out --launcher, or call it twice"
        )
    try:
        data = None if launcher is None else launcher.read_bytes()
        if data == b"":
            raise BadInput(f"--launcher {launcher} is empty")
        key.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        is_new = not key.exists()
        keys = Keys(folder, key)
        signed = keys.rotate() if rotate else keys.sign(data)
    except OSError as error:
        raise BadInput(f"{error.filename}: {error.strerror}", hint="name another FOLDER or --key") from None
    if as_json:
        print_json({"folder": str(folder), "key": str(key), "new_key": is_new, "file": signed.file, "md5": signed.md5,
                    "version": signed.version, "public_key": signed.public.text()})  # fmt: skip
        return
    click.echo(f"{folder / signed.file} is signed, MD5 {signed.md5}")
    if is_new:
        note(f"  {key} was not there: a new key was made, by which clients will know the project")
    note(f"  the private key stays in {key}: keep it off the server, and keep a copy")
    note(f"  copy {folder} to pools/{POOL} of the server's state, then: windfall boinc enable (or: reload)")


@boinc.command()
@_pool_option
@place_options
@json_option
def reload(pool: str, place: Place, as_json: bool) -> None:
    """Use the launcher that was signed elsewhere and copied to the server's folder meanwhile."""
    with place.open() as client:
        shown = client.tell_front(pool, "reload")
    if as_json:
        print_json(shown)
    else:
        click.echo(f"clients get {shown['launcher']['file']}, MD5 {shown['launcher']['md5']}")
