"""Headrace inside vLLM: the policies of `headrace_engine.policies` on vLLM's own scheduler.

vLLM's `schedule()` is never copied or edited. A step goes

    plan → queue shows the planned prefix → budget, running order, skipped, caps → vLLM's schedule() → board

| module      | what                                                                 |
|-------------|----------------------------------------------------------------------|
| policy_scheduler | subclasses of vLLM's schedulers: hooks only                     |
| step_planner | plans one step, applies the plan, undoes it                         |
| policy_guard | a policy that fails costs its own step FCFS, never the engine       |
| stopwatch   | CPU time of a thread, told cheaply                                   |
| hook_guard  | whatever else of ours fails costs what it was called for             |
| plan_queue  | the waiting requests that vLLM sees of the plan                      |
| scheduler_view | vLLM's scheduler as a policy sees it                              |
| request_tracker, targets | what each request is predicted to produce, and shall meet |
| prefix_cache | what vLLM's cache has of a prompt                                   |
| step_timer, step_features | how long steps take, and what they compute             |
| encoder     | how long encoders take, and what they still have to do               |
| telemetry   | board, step samples, finished requests                               |
| resume      | requests that go on after tokens that another engine delivered      |
| seeded_draws, unmerged_outputs | what that takes in workers, and in the front end |
| hand_back   | requests that lost their KV go back to who sent them                 |
| control_link | the files to and from the sidecar, and the thread that watches them |
| scheduler_factory | makes the engine's scheduler: with policies, or stock with the reason |
| boot_report | tells the sidecar which of the two it is                             |
| startup_phases | tells the sidecar how far vLLM's start is                         |
| termination_message | leaves the reason for an engine's death with the kubelet     |
| compat      | which vLLM is supported, and what we rely on in it, checked at start |
"""
