"""Scheduling policies: pure decisions over a live view of one engine.

Before each step the adapter shows a policy the engine (`view.EngineView`) and gets a `plan.Plan` back. A
policy is a composition (`composition.Policy`) of four decisions:

| part        | decides                                                     | if left out                  |
|-------------|-------------------------------------------------------------|------------------------------|
| order       | which waiting request is next                               | the queue's own order        |
| admission   | how far down that order this step may go                    | until the engine is full     |
| step budget | how many tokens the step may process                        | the engine's own limit       |
| limiter     | which running requests are skipped, capped or preempted     | none                         |

Besides, it may do beforehand, while the device computes a step, what planning the next one would wait for
(`composition.Preparer`).

Nothing here reads a clock, a file or vLLM: the same calls give the same plans on any machine. To add a
policy, write one module like `larry` and enter it in `registry.POLICIES`; its parameters reach the custom
resource, the validator and the documentation from its `Params`. What users have no reason to touch, such as
a part left out to see what it is worth, is no parameter: simulations choose it (`headrace_engine.sim.form`).
"""
