// Receives webhooks, verifies them and acts on each once; Node.js 18 or later is all it needs.
//
//     WEBHOOK_SECRETS='whsec_...' node examples/receiver_verify.mjs 9000
//
// During a rotation WEBHOOK_SECRETS holds both secrets, with a blank between. What came is kept in the file RECEIVER_DATA
// (`received.jsonl`): one line for each message is both the memory of its id and the effect, so they are one write. A program
// with a database puts the two into one transaction instead.

import { createHmac, timingSafeEqual } from "node:crypto";
import { closeSync, existsSync, fstatSync, fsyncSync, ftruncateSync, openSync, readFileSync, truncateSync, writeSync } from "node:fs";
import { createServer } from "node:http";

const TOLERANCE = 300; // seconds by which the clocks may differ; what is older may be played back by somebody
const LARGEST = 1 << 20;
const DATA = process.env.RECEIVER_DATA ?? "received.jsonl";
const SECRETS = (process.env.WEBHOOK_SECRETS ?? "")
    .split(/\s+/)
    .filter(Boolean)
    .map((one) => Buffer.from(one.replace(/^whsec_/, ""), "base64"));

class Refused extends Error {}

// The message's id, if it was signed with one of the secrets just now, over exactly these bytes.
function verify(secrets, headers, body, now) {
    const [key, stamp, signatures] = ["id", "timestamp", "signature"].map((name) => headers[`webhook-${name}`] ?? "");
    if (!key || !/^[0-9]{1,12}$/.test(stamp) || !signatures)
        throw new Refused("expected the headers webhook-id, webhook-timestamp and webhook-signature");
    if (Math.abs(now - Number(stamp)) > TOLERANCE) throw new Refused("the timestamp is too far from now");
    const given = signatures.split(" ").map((one) => Buffer.from(one));
    let fits = false;
    for (const secret of secrets) {
        const mine = Buffer.from("v1," + createHmac("sha256", secret).update(`${key}.${stamp}.`).update(body).digest("base64"));
        // Every pair is compared, each in constant time: how long it takes tells nothing.
        for (const theirs of given) fits = (theirs.length === mine.length && timingSafeEqual(theirs, mine)) || fits;
    }
    if (!fits) throw new Refused("no signature fits");
    return key;
}

// The ids that were acted on; half a line at the end is of a write that a crash cut off, which was never answered.
function remember() {
    if (!existsSync(DATA)) return new Set();
    const kept = readFileSync(DATA);
    const whole = kept.subarray(0, kept.lastIndexOf("\n") + 1);
    truncateSync(DATA, whole.length);
    return new Set(whole.toString().split("\n").filter(Boolean).map((line) => JSON.parse(line).id));
}

const seen = remember();

// Acts on a message unless it was acted on before; true once it is on disk.
function take(key, body) {
    if (seen.has(key)) return false;
    const file = openSync(DATA, "a");
    const size = fstatSync(file).size;
    try {
        writeSync(file, JSON.stringify({ id: key, body: body.toString() }) + "\n");
        fsyncSync(file);
    } catch (error) {
        ftruncateSync(file, size); // no half of a line stays before the next one
        throw error;
    } finally {
        closeSync(file);
    }
    seen.add(key);
    return true;
}

// 200 to what is authentic, new or not; 401 to what isn't; 503 where it can't be kept now.
function judge(request, body) {
    try {
        const key = verify(SECRETS, request.headers, body, Date.now() / 1000);
        console.log(`${key} ${take(key, body) ? "taken" : "known already"}`);
        return [200, "ok"];
    } catch (error) {
        return error instanceof Refused ? [401, error.message] : [503, "try again", { "retry-after": "5" }];
    }
}

if (SECRETS.length === 0) {
    console.error("expected the secret, or during a rotation the secrets, in WEBHOOK_SECRETS");
    process.exit(1);
}
const server = createServer((request, response) => {
    const tooLarge = () => response.writeHead(413, { connection: "close" }).end();
    if (Number(request.headers["content-length"]) > LARGEST) return tooLarge();
    const parts = [];
    let size = 0;
    request.on("data", (part) => {
        size += part.length;
        if (size <= LARGEST) parts.push(part);
        else if (!response.headersSent) tooLarge();
    });
    request.on("end", () => {
        if (response.headersSent) return;
        // The bytes as they came, before any parsing: the signature is over them.
        const [status, said, headers = {}] = judge(request, Buffer.concat(parts));
        response.writeHead(status, { "content-length": Buffer.byteLength(said), ...headers }).end(said);
    });
});
server.listen(Number(process.argv[2] ?? 9000), "127.0.0.1", () => {
    console.log(`Listening on http://127.0.0.1:${server.address().port}`);
});
