// Tests the example against the `sluice up` at SLUICE_NATS_URL, or against one that it starts: SLUICE_BIN, bin/sluice, or a new build.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { createHash, randomUUID } from "node:crypto";
import { once } from "node:events";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after, before, test } from "node:test";
import { createInbox, headers } from "@nats-io/transport-node";
import { jetstream } from "@nats-io/jetstream";
import { open, processId, subject } from "./sluice.mjs";

const here = import.meta.dirname ?? new URL(".", import.meta.url).pathname;
let data, up;

before(async () => {
  if (process.env.SLUICE_NATS_URL) return;
  data = mkdtempSync(join(tmpdir(), "sluice-node-"));
  const built = join(here, "../../bin/sluice");
  let bin = process.env.SLUICE_BIN ?? (existsSync(built) ? built : "");
  if (!bin) {
    bin = join(data, "sluice");
    execFileSync("go", ["build", "-o", bin, "./cmd/sluice"], { cwd: join(here, "../.."), stdio: "inherit" });
  }
  process.env.SLUICE_DATA = join(data, "data");
  up = spawn(bin, ["up", "--provider", "local", "--listen", "127.0.0.1:0", "--log-level", "warn"], { stdio: ["ignore", "pipe", "inherit"] });
  const [line] = await Promise.race([once(createInterface(up.stdout), "line"), once(up, "exit").then(() => ["sluice up ended"])]);
  assert.match(line, /^sluice is up/);
});

after(async () => {
  if (!up) return;
  if (up.exitCode === null && up.kill("SIGTERM")) await once(up, "exit");
  rmSync(data, { recursive: true, force: true });
});

/** Runs one of the scripts and gathers what it prints. */
async function run(script, ...args) {
  const child = spawn(process.execPath, [join(here, script), ...args], { stdio: ["ignore", "pipe", "pipe"] });
  const out = [], err = [];
  child.stdout.on("data", (p) => out.push(p));
  child.stderr.on("data", (p) => err.push(p));
  const [code] = await once(child, "close");
  return { code, stdout: Buffer.concat(out), stderr: Buffer.concat(err).toString() };
}

const thread = `node-${randomUUID()}`;

test("the process id is the one that Go computes", () => {
  for (const v of JSON.parse(readFileSync(join(here, "../../schemas/vectors/process-ids.json"), "utf8"))) {
    assert.equal(processId(v.thread, v.key, v.tenant), v.process);
  }
});

test("output and exit code are the command's", async () => {
  const r = await run("exec.mjs", "--thread", thread, "--", "bash", "-c", "echo out; echo err >&2; exit 3");
  assert.equal(r.stderr, "err\n");
  assert.equal(r.stdout.toString(), "out\n");
  assert.equal(r.code, 3);
});

test("the same key runs once, and its log can be read later", async () => {
  const key = randomUUID();
  const command = ["exec.mjs", "--thread", thread, "--key", key, "--", "bash", "-c", "echo $RANDOM$RANDOM$RANDOM"];
  const first = await run(...command);
  assert.equal(first.code, 0, first.stderr);
  assert.match(first.stdout.toString(), /^\d+\n$/);
  const second = await run(...command);
  assert.deepEqual(second.stdout, first.stdout);
  const later = await run("log.mjs", "--thread", thread, "--key", key);
  assert.deepEqual(later.stdout, first.stdout);
  const other = await run("exec.mjs", "--thread", thread, "--key", key, "--", "true");
  assert.equal(other.code, 125);
  assert.match(other.stderr, /\(conflict\)/);
});

test("long output arrives whole", async () => {
  const key = randomUUID();
  const want = createHash("sha256").update(Array.from({ length: 1_000_000 }, (_, i) => `${i + 1}\n`).join("")).digest("hex");
  const sum = (r) => createHash("sha256").update(r.stdout).digest("hex");
  const live = await run("exec.mjs", "--thread", thread, "--key", key, "--", "seq", "1000000");
  assert.equal(live.code, 0, live.stderr);
  assert.equal(sum(live), want);
  assert.equal(sum(await run("log.mjs", "--thread", thread, "--key", key)), want);
});

test("an agent answers, and the same key gets the same answer", async () => {
  const message = ["exec.mjs", "--thread", `agent-${randomUUID()}`, "--template", "echo-agent", "--key", "k", "--message", "hello there"];
  for (const r of [await run(...message), await run(...message)]) {
    assert.equal(r.code, 0, r.stderr);
    assert.equal(r.stdout.toString(), '(1) hello there\n{"type":"result","usage":{"input_tokens":2,"output_tokens":3}}\n');
  }
  const none = await run("exec.mjs", "--thread", `agent-${randomUUID()}`, "--message", "hello");
  assert.match(none.stderr, /no agent.*\(invalid_argument\)\n$/);
});

test("a command left in the queue is run, and answered in the inbox", async () => {
  const nc = await open();
  const inbox = createInbox();
  const answers = nc.subscribe(inbox);
  const h = headers();
  h.set("Sluice-Inbox", inbox);
  const fresh = randomUUID(); // a thread without an owner: a worker claims it with the command
  const command = { specversion: "1", op: "exec", thread: fresh, key: "k", exec: { command: "pwd" } };
  await jetstream(nc).publish(subject("cmd", fresh, "exec"), JSON.stringify(command), { headers: h });
  const types = [];
  for await (const m of answers) {
    types.push(m.json().type);
    if (types.at(-1) === "process.accepted") continue;
    assert.equal(m.json().data.exit_code, 0);
    assert.equal(m.json().process, processId(fresh, "k"));
    break;
  }
  assert.deepEqual(types, ["process.accepted", "process.exited"]);
  await nc.close();
});

test("a command that is not there, and one that is wrong", async () => {
  assert.equal((await run("exec.mjs", "--thread", thread, "--", "no-such-program")).code, 127);
  const bad = await run("exec.mjs", "--thread", thread, "--key", "k".repeat(257), "--", "true");
  assert.equal(bad.code, 125);
  assert.match(bad.stderr, /^sluice: key: .*\(invalid_argument\)\n$/);
});
