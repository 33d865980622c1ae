// Written by `practicum connect opencode`; `practicum disconnect opencode` removes it.
// After each turn, it writes the session as `opencode export` does, for `practicum nightly`.
import { appendFileSync, mkdirSync, renameSync, writeFileSync } from "node:fs"
import { join } from "node:path"

const store = "STORE"

export const Practicum = async ({ client, directory }) => ({
  event: async ({ event }) => {
    if (event.type !== "session.idle" || process.env.PRACTICUM_CAPTURE === "off") return
    const id = event.properties.sessionID
    try {
      const info = (await client.session.get({ path: { id } })).data
      // The session of a subagent is part of another session.
      if (!info || info.parentID) return
      const messages = (await client.session.messages({ path: { id } })).data
      const folder = join(store, "opencode")
      const transcript = join(folder, `${id}.json`)
      mkdirSync(folder, { recursive: true, mode: 0o700 })
      writeFileSync(`${transcript}.part`, JSON.stringify({ info, messages }), { mode: 0o600 })
      renameSync(`${transcript}.part`, transcript)
      const line = { program: "opencode", session: id, transcript, folder: directory, time: new Date().toISOString() }
      appendFileSync(join(store, "captured.jsonl"), JSON.stringify(line) + "\n", { mode: 0o600 })
    } catch (error) {
      try {
        appendFileSync(join(store, "capture.log"), `${new Date().toISOString()} opencode: ${error}\n`, { mode: 0o600 })
      } catch {
        // The store cannot be written. The program of the user must not fail.
      }
    }
  },
})
