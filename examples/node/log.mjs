// Prints the stored output of a process: node log.mjs --thread T (--process P | --key K) [--from SEQ]
import { parseArgs } from "node:util";
import { open, processId, readLog } from "./sluice.mjs";

const { values } = parseArgs({
  options: { thread: { type: "string", default: "node" }, process: { type: "string" }, key: { type: "string" }, from: { type: "string", default: "1" } },
});
const proc = values.process ?? processId(values.thread, values.key);

const nc = await open();
for await (const { stream, data } of readLog(nc, values.thread, proc, Number(values.from))) process[stream].write(data);
await nc.close();
