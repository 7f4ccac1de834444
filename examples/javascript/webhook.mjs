// Verify messages of deliver_webhook and of alerts, which are signed as Standard Webhooks 1.0.0 specifies.
//
//   import { isGenuine } from "./webhook.mjs";
//   if (!isGenuine("whsec_…", request.headers, rawBody)) return response.writeHead(401).end();
//
// `secret`: whsec_ and base64. `headers`: names in lower case. `body`: as received, a Buffer or text, not parsed.

import { createHmac, timingSafeEqual } from "node:crypto";

const TOLERANCE = 300; // seconds

export function isGenuine(secret, headers, body, now = Date.now() / 1000) {
  const { "webhook-id": id, "webhook-timestamp": at, "webhook-signature": signatures } = headers;
  if (!id || !signatures || !/^\d{1,12}$/.test(at ?? "")) return false;
  if (Math.abs(now - Number(at)) > TOLERANCE) return false; // replayed
  const key = Buffer.from(secret.replace(/^whsec_/, ""), "base64");
  const expected = createHmac("sha256", key).update(`${id}.${at}.`).update(body).digest();
  return signatures.split(" ").some((one) => {
    const [version, mac] = one.split(",");
    const given = Buffer.from(mac ?? "", "base64");
    return version === "v1" && given.length === expected.length && timingSafeEqual(given, expected);
  });
}
