"""Headrace inside vLLM: the policies of `headrace_engine.policies` on vLLM's own scheduler.

vLLM's `schedule()` is never copied or edited. A step goes

    plan → queue shows the planned prefix → budget, running order, hidden, caps → vLLM's schedule() → board

| module      | what                                                                 |
|-------------|----------------------------------------------------------------------|
| scheduler   | subclasses of vLLM's schedulers: hooks only                          |
| step        | plan, apply, undo: one step                                          |
| guard       | a policy that fails costs its own step FCFS, never the engine        |
| contained   | whatever else of ours fails costs what it was called for             |
| queue, view | what vLLM sees of the plan, and the policy of vLLM                   |
| encoder     | how long encoders take, and what they still have to do               |
| telemetry   | board, step samples, finished requests                               |
| link        | the files to and from the sidecar, and the thread that watches them  |
| choice      | whether this engine can run policies at all; otherwise stock, with the reason |
| announce    | tells the sidecar which of the two it is                             |
| phases      | tells the sidecar how far vLLM's start is                            |
| last_words  | leaves the reason for an engine's death with the kubelet             |
| seams       | what we rely on in vLLM, checked at start                            |
"""
