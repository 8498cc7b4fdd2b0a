"""Clients that tools of others make from the OpenAPI document, by the commands on the page of the API, are used against the service, and
linters find nothing to say of the document.

Named so that pytest runs it only when asked for: `COUPONS_TESTS=clients scripts/test`, which installs the tools that tests/clients pins.
"""
import html
import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest

import shop
from contract import DOCUMENT
from stack import ROOT

SOURCES = ROOT / "tests" / "clients"
PAGE = ROOT / "app" / "static" / "docs" / "index.html"
SITE = "https://shop.example"
OFF = {"kind": "amount", "amount_minor": 500, "currency": "EUR", "min_spend_minor": 2000}
TOOLS = pathlib.Path(os.environ.get("COUPONS_CLIENT_TOOLS", "/nowhere"))


@pytest.fixture
def folder(tmp_path):
    """The sources of the clients, beside which they are generated."""
    shutil.copytree(SOURCES, tmp_path, dirs_exist_ok=True)
    shutil.copy(DOCUMENT, tmp_path)
    (tmp_path / "node_modules").symlink_to(TOOLS / "node_modules")
    return tmp_path


def generate(folder, generator):
    """By what the page tells a reader to type."""
    [command] = re.findall(rf'<pre tabindex="0" data-generator="{generator}">(.*?)</pre>', PAGE.read_text(), re.S)
    return run(folder, "bash", "-euc", html.unescape(command), npm_config_offline="true")


CHECK_OUT = """
const [coupon, coded, holdS, second] = process.argv.slice(2) as [string, string, string, string];
const ends: Record<string, [string | boolean | null, number]> = {};
const taking = (user: string, id: string, amount_minor: number, code?: string): Taking =>
  ({ user, order: { id, amount_minor, currency: 'EUR' }, ...(code && { code }) });

async function buy(name: string, coupon: string, taking: Taking, attempt: number, pays = async () => true) {
  let charged = 0;
  const pay = async (amount: number) => {
    if (!await pays()) return false;
    charged += amount;
    return true;
  };
  const { state } = await checkOut(coupon, taking, attempt, pay);
  ends[name] = [state, charged];
  return state;
}

async function paysLate() {
  await new Promise((done) => setTimeout(done, 1000 * Number(holdS) + 100));
  return true;
}

/** With the next attempt, where this machine is so slow that the hold ends before there is time to pay. */
async function buyHeld(name: string, taking: Taking, attempt: number, pays?: () => Promise<boolean>) {
  while (await buy(name, coded, taking, attempt, pays) === 'expired') attempt++;
}

async function buySeveral(name: string, code: string, user: string, id: string, pays = true) {
  let charged = 0;
  const pay = async (amount: number) => {
    if (pays) charged += amount;
    return pays;
  };
  const ended = await checkOutAll([{ coupon }, { coupon: second, code }], taking(user, id, 4200), 1, pay);
  ends[name] = [ended.map((one) => one.state).join(' '), charged];
}

const { order } = taking('u-4', 'o-4', 4200);
const found = await lookUp('FLYER-3', 'u-4', order);
ends.found = [!!found?.ok, found?.discount_minor ?? 0];
ends.unknown_code = [(await lookUp('NEVER', 'u-4', order))?.coupon ?? null, 0];
await buy('paid', coupon, taking('o"neil', 'o"1', 4200), 1);
await buy('unpaid', coupon, taking('u-2', 'o-2', 4200), 1, async () => false);
await buy('unpaid_again', coupon, taking('u-2', 'o-2', 4200), 1);
await buy('then_paid', coupon, taking('u-2', 'o-2', 4200), 2);
await buy('paid_again', coupon, taking('u-2', 'o-2', 4200), 2);
const problem: Problem = await buy('refused', coupon, taking('u-3', 'o-3', 1500), 1).then(() => { throw new Error('taken'); },
  (error) => error.problem);
ends.refused = [problem.code, problem.missing_minor ?? -1];
const u4 = taking('u-4', 'o-4', 4200, 'FLYER-1'), u5 = taking('u-5', 'o-5', 4200, 'FLYER-2');
await hold(coded, u5, 1);
await buyHeld('late', u4, 1, paysLate);
await buy('lapsed', coded, u5, 1);
await buyHeld('after_lapse', u5, 2);
await buySeveral('several', 'SECOND', 'u-6', 'o-6');
await buySeveral('several_again', 'SECOND', 'u-6', 'o-6');
await buySeveral('several_unpaid', 'SECOND', 'u-7', 'o-7', false);
ends.several_refused = await buySeveral('several_refused', 'NEVER', 'u-8', 'o-8').then(() => { throw new Error('taken'); },
  (error) => [error.problem.code, 0]);
console.log(JSON.stringify(ends));
"""

CHECK_OUT_PHP = r"""
[, $coupon, $coded, $hold_s, $second] = $argv;
$ends = [];
function taking($user, $id, $amount, ...$code)
{
    return ['user' => $user, 'order' => ['id' => $id, 'amount_minor' => $amount, 'currency' => 'EUR'], ...$code];
}
/** [what $check_out returns, what was charged] */
function charging($pays, $check_out)
{
    $charged = 0;
    $ended = $check_out(function ($amount) use ($pays, &$charged) {
        if (!$pays()) {
            return false;
        }
        $charged += $amount;
        return true;
    });
    return [$ended, $charged];
}
function buy($name, $coupon, $taking, $attempt, $pays = null)
{
    [$ended, $charged] = charging($pays ?? fn() => true, fn($pay) => check_out($coupon, $taking, $attempt, $pay));
    $GLOBALS['ends'][$name] = [$ended['state'], $charged];
    return $ended['state'];
}
/** With the next attempt, where this machine is so slow that the hold ends before there is time to pay. */
function buy_held($name, $taking, $attempt, $pays = null)
{
    while (buy($name, $GLOBALS['coded'], $taking, $attempt, $pays) === 'expired') {
        $attempt++;
    }
}
function buy_several($name, $code, $user, $id, $pays = null)
{
    global $coupon, $second, $ends;
    [$ended, $charged] = charging($pays ?? fn() => true,
        fn($pay) => check_out_all([[$coupon, null], [$second, $code]], taking($user, $id, 4200), 1, $pay));
    $ends[$name] = [implode(' ', array_column($ended, 'state')), $charged];
}
$pays_late = function () use ($hold_s) {
    usleep((int) (1e6 * $hold_s + 1e5));
    return true;
};

$order = taking('u-4', 'o-4', 4200)['order'];
$found = look_up('FLYER-3', 'u-4', $order);
$ends['found'] = [$found['ok'], $found['discount_minor']];
$ends['unknown_code'] = [look_up('NEVER', 'u-4', $order), 0];
buy('paid', $coupon, taking('o"neil', 'o"1', 4200), 1);
buy('unpaid', $coupon, taking('u-2', 'o-2', 4200), 1, fn() => false);
buy('unpaid_again', $coupon, taking('u-2', 'o-2', 4200), 1);
buy('then_paid', $coupon, taking('u-2', 'o-2', 4200), 2);
buy('paid_again', $coupon, taking('u-2', 'o-2', 4200), 2);
try {
    buy('refused', $coupon, taking('u-3', 'o-3', 1500), 1);
} catch (Refused $refused) {
    $ends['refused'] = [$refused->problem['code'], $refused->problem['missing_minor']];
}
[$u4, $u5] = [taking('u-4', 'o-4', 4200, code: 'FLYER-1'), taking('u-5', 'o-5', 4200, code: 'FLYER-2')];
hold($coded, $u5, 1);
buy_held('late', $u4, 1, $pays_late);
buy('lapsed', $coded, $u5, 1);
buy_held('after_lapse', $u5, 2);
buy_several('several', 'SECOND', 'u-6', 'o-6');
buy_several('several_again', 'SECOND', 'u-6', 'o-6');
buy_several('several_unpaid', 'SECOND', 'u-7', 'o-7', fn() => false);
try {
    buy_several('several_refused', 'NEVER', 'u-8', 'o-8');
} catch (Refused $refused) {
    $ends['several_refused'] = [$refused->problem['code'], 0];
}
echo json_encode($ends);
"""


def run(folder, *command, **environment):
    done = subprocess.run([str(word) for word in command], cwd=folder, env={**os.environ, **environment}, text=True, timeout=500,
                          stdin=subprocess.DEVNULL, capture_output=True)
    assert done.returncode == 0, f"{command}: exit {done.returncode}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def node(folder, name, *words):
    return run(folder, folder / "node_modules" / ".bin" / name, *words, NO_UPDATE_NOTIFIER="1", REDOCLY_TELEMETRY="off")


def check_out(stack, folder, coupon, *client):
    """The client made a coupon, changed it, checked and held one, redeemed it, gave it back, and understood refusals."""
    paper = stack.imported([coupon], discount=OFF)
    seen = json.loads(run(folder, *client, f"http://127.0.0.1:{stack.port}", stack.key("ops"), stack.key("storefront"), coupon))
    assert seen == {"title": "Changed", "discount_minor": 500, "states": ["reserved", "redeemed", "reversed"],
                    "refused": "coupon_not_found", "campaign": {"n": 1}, "total": 5,
                    "checked": [True, 500, 1], "found": ["order_not_eligible", "min_spend", 420]}


def test_redocly_finds_nothing(folder):
    said = json.loads(node(folder, "redocly", "lint", DOCUMENT, "--format", "json"))
    assert said["totals"] == {"errors": 0, "warnings": 0, "ignored": 0}, said


def test_python(stack, folder):
    said = generate(folder, "python")
    assert "arning" not in said and "nable to" not in said, said
    python = TOOLS / "venv" / "bin" / "python"
    run(folder, python, "-c", "import api, importlib, pkgutil\n"
        "for module in pkgutil.walk_packages(api.__path__, 'api.'): importlib.import_module(module.name)")
    names = {re.sub("(?<=[a-z0-9])(?=[A-Z])", "_", name).lower() for name in json.loads(DOCUMENT.read_text())["components"]["schemas"]}
    unnamed = {file.stem for file in (folder / "api" / "models").glob("*.py")} - names - {"__init__"}
    assert not unnamed, f"models of schemas without a name: {sorted(unnamed)}"
    check_out(stack, folder, "by-python", python, "client.py")


def test_typescript(stack, folder):
    generate(folder, "typescript")
    node(folder, "tsc", "-p", ".")
    check_out(stack, folder, "by-typescript", "node", "client.js")
    coupon = stack.imported(["FROM-A-PAGE"], discount=OFF)
    key = stack.new_key("public", "--origin", SITE)
    seen = json.loads(run(folder, "node", "page.js", f"http://127.0.0.1:{stack.port}", key, SITE, coupon, "FROM-A-PAGE"))
    assert seen == {"good": True, "missing": 420, "coupon": coupon}


def test_the_program_for_shops_in_typescript(stack, folder):
    (folder / "checkout.ts").write_text("declare const process: { argv: string[]; env: Record<string, string | undefined> };\n"
                                        + shop.program("ts") + CHECK_OUT)
    (folder / "checkout.json").write_text(json.dumps({"extends": "./tsconfig.json", "files": ["checkout.ts"]}))
    node(folder, "tsc", "-p", "checkout.json")
    shop.check_out(stack, folder, "node", "checkout.js")


def test_the_program_for_shops_in_php(stack, folder):
    (folder / "checkout.php").write_text(shop.program("php") + CHECK_OUT_PHP)
    shop.check_out(stack, folder, "php", "checkout.php")


def test_go(stack, folder):
    generate(folder, "go")
    run(folder, "go", "build", "-o", "client", ".")
    check_out(stack, folder, "by-go", folder / "client")


def test_php(stack, folder):
    generate(folder, "php")
    made = sorted((folder / "php" / "lib").rglob("*.php"))
    run(folder, "bash", "-c", 'for file; do php -l "$file" || exit; done', "bash", *made)
    check_out(stack, folder, "by-php", "php", "client.php")


@pytest.mark.parametrize("generator", ["php", "java", "typescript-axios"])
def test_the_calls_of_webhooks_are_not_lost_behind_their_events(folder, generator):
    """Of two groups of calls with one name, openapi-generator would write one."""
    [command] = re.findall(r'data-generator="php">(.*?)</pre>', PAGE.read_text())
    run(folder, "bash", "-euc", command.replace("-g php", f"-g {generator}"))
    text = "".join(file.read_text() for file in (folder / "php").rglob("*.*") if file.suffix in (".php", ".java", ".ts"))
    names = [o["operationId"] for path, methods in json.loads(DOCUMENT.read_text())["paths"].items() for o in methods.values()]
    lost = [name for name in names if re.sub("_(.)", lambda m: m[1].upper(), name) + "(" not in text]
    assert len(names) > 50 and not lost, lost
