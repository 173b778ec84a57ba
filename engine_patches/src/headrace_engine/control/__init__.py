"""Files between an engine and the sidecar beside it, all under one shared memory folder.

| file                    | direction        | what it is                                            |
|-------------------------|------------------|-------------------------------------------------------|
| control/policy.json     | sidecar → engine | the policy document in force (`policy_file`)          |
| control/resume-key.json | sidecar → engine | whose resumed requests are obeyed (`document_file`)   |
| control/turn-group.json | user → engine    | who shares its GPU (`document_file`)                  |
| stats/rank<r>.json      | engine → sidecar | who booted, with which scheduler (`boot`)             |
| stats/rank<r>.board     | engine → sidecar | the engine's state now, one record (`board`)          |
| stats/rank<r>.steps     | engine → sidecar | ring of step samples (`ring`)                         |
| stats/rank<r>.finished  | engine → sidecar | ring of finished requests (`ring`)                    |

Every file appears under its name by a rename, so a reader sees a whole file or none, and an engine that
boots again brings new inodes: truncating a file under a reader would be SIGBUS. Neither side ever waits for
the other, and either may be absent, dead, older or newer: the reader then has nothing new, and says so.
"""
