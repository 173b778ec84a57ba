"""What the scheduling policy does inside the engines."""

from charts.dashboards.panels import (
    COUNT,
    GREEN,
    ORANGE,
    PER_SECOND,
    RATE,
    RED,
    SECONDS,
    SHARE,
    TOKENS,
    Board,
    Row,
    Variable,
    lines,
    number,
    rows,
)

HERE = 'namespace=~"$namespace", service=~"$service", pod=~"$pod"'


def of(metric: str) -> str:
    """Choose a metric of the chosen engines."""
    return f"{metric}{{{HERE}}}"


def rate(metric: str) -> str:
    """Return its rate, for each engine."""
    return f"sum by (pod) (rate({of(metric)}{RATE}))"


def total_rate(metric: str) -> str:
    """Return its rate over all chosen engines."""
    return f"sum(rate({of(metric)}{RATE}))"


PREDICTED = total_rate("headrace_prediction_ratio_count")


def predicted(inner: str) -> str:
    """Return a share of the finished requests whose output was predicted, by `inner` over all of them."""
    return f"{inner} / {PREDICTED}"


def ratio_bucket(bound: str) -> str:
    """Count the requests whose predicted output was at most `bound` times the real one."""
    return f'sum(rate(headrace_prediction_ratio_bucket{{{HERE}, le="{bound}"}}{RATE}))'


IN_FORCE = Row(
    "In force",
    (
        rows(
            "Policy",
            of("headrace_policy_info"),
            ("namespace", "service", "pod", "policy", "hash"),
            about="What the engine really runs; status.policy.hash is what the service asks for.",
        ),
        rows("Predictor of output lengths", of("headrace_predictor_info"), ("service", "pod", "predictor")),
    ),
)
HEALTH = Row(
    "Health",
    (
        number(
            "Switched off",
            COUNT,
            f"sum({of('headrace_policy_disabled')})",
            about="Engines that schedule FCFS because the policy failed five steps in a row.",
            steps=((0, GREEN), (1, RED)),
        ),
        number(
            "Refused",
            COUNT,
            f"sum({of('headrace_policy_refused')})",
            about="Engines whose sidecar does not know the policy that is asked for.",
            steps=((0, GREEN), (1, RED)),
        ),
        number(
            "Steps planned FCFS",
            SHARE,
            f"{total_rate('headrace_policy_fallback_steps_total')} / {total_rate('headrace_steps_total')}",
            steps=((0, GREEN), (0.0001, ORANGE), (0.01, RED)),
        ),
        number(
            "Predictions failed",
            PER_SECOND,
            total_rate("headrace_prediction_failures_total"),
            steps=((0, GREEN), (0.001, ORANGE)),
        ),
        number(
            "Records lost",
            PER_SECOND,
            total_rate("headrace_lost_records_total"),
            about="The sidecar was too late to read them: histograms miss these requests. It wants CPU.",
            steps=((0, GREEN), (0.001, ORANGE)),
        ),
        number(
            "Client overrides ignored",
            PER_SECOND,
            total_rate("headrace_ignored_overrides_total"),
            about="Targets and hints of clients that were no numbers, out of range or not allowed.",
            steps=((0, GREEN), (0.001, ORANGE)),
        ),
    ),
)
STEPS = Row(
    "Steps",
    (
        lines("Steps", PER_SECOND, (rate("headrace_steps_total"), "{{pod}}")),
        lines("Duration of a step", SECONDS, (of("headrace_step_seconds"), "{{pod}}")),
        lines(
            "Token budget of a step",
            TOKENS,
            (of("headrace_step_budget_tokens"), "{{pod}}"),
            about="spec.scheduling.stepBudget; in mode SLO it follows the tightest TPOT target.",
        ),
        lines(
            "Running requests that a step skips",
            COUNT,
            (of("headrace_skipped_requests"), "{{pod}}"),
            about="Skipped by the policy: they keep their KV and make no token in this step.",
        ),
    ),
)
STATE = Row(
    "Inner state",
    (
        lines(
            "State of the policy",
            COUNT,
            (f"sum by (policy, what) ({of('headrace_policy_state')})", "{{policy}}: {{what}}"),
            about="Each policy's page says what these are; FCFS and LARRY have none.",
        ),
        lines(
            "Prompt tokens still to be computed",
            TOKENS,
            (f"sum by (state) ({of('headrace_prefill_tokens')})", "{{state}}"),
            stacked=True,
        ),
        lines(
            "KV blocks: free, and what waiting prompts need",
            COUNT,
            (f'sum(headrace_kv_blocks{{{HERE}, state="free"}})', "free"),
            (f"sum({of('headrace_waiting_kv_blocks')})", "needed"),
        ),
        lines(
            "Prefill throughput, fitted",
            TOKENS,
            (of("headrace_prefill_tokens_per_second"), "{{pod}}"),
            about="Tokens per second of a full step; 0 until enough steps were seen.",
        ),
    ),
)
EFFECTS = Row(
    "Effects",
    (
        lines(
            "Output lengths predicted",
            SHARE,
            (predicted(ratio_bucket("0.9")), "too short by more than a tenth"),
            (
                predicted(f"({PREDICTED} - {ratio_bucket('1.1')})"),
                "too long by more than a tenth",
            ),
        ),
        lines(
            "Requests that the predictor learned from",
            PER_SECOND,
            (rate("headrace_predictions_learned_total"), "{{pod}}"),
        ),
        lines("Preemptions", PER_SECOND, (rate("headrace_preemptions_total"), "{{pod}}")),
        lines(
            "Gaps longer than the TPOT target",
            PER_SECOND,
            (rate("headrace_itl_violations_total"), "{{pod}}"),
        ),
    ),
)
SHARING = Row(
    "GPUs that engines share",
    (
        lines(
            "How engines share",
            COUNT,
            (f"sum by (state) ({of('headrace_turn_state')})", "{{state}}"),
            about="Alone: the engine can't reach its group's turn server, and computes whenever it wants.",
            stacked=True,
        ),
        lines("Turns", PER_SECOND, (rate("headrace_turns_total"), "{{pod}}")),
        lines(
            "Time waited for turns",
            SHARE,
            (rate("headrace_turn_wait_seconds_total"), "{{pod}}"),
            about="Share of the time in which an engine has requests to compute, and waits for its turn.",
        ),
    ),
)
ENGINES = Row(
    "Engines",
    (
        lines(
            "State",
            COUNT,
            (f"sum by (state) ({of('headrace_engine_state')})", "{{state}}"),
            about="Engines in each state. Hung: requests run and no step is made.",
            stacked=True,
        ),
        lines(
            "Starts",
            COUNT,
            (f"sum by (pod) (increase({of('headrace_engine_boots_total')}[1h]))", "{{pod}}"),
            about="In the hour before.",
        ),
        lines(
            "Prompt tokens arrived",
            TOKENS,
            (rate("headrace_prompt_tokens_arrived_total"), "{{pod}}"),
            about="Per second.",
        ),
    ),
)
BOARD = Board(
    "policy",
    "Headrace / Engine policy",
    "What the scheduling policy does inside the engines of a service.",
    (IN_FORCE, HEALTH, STEPS, STATE, EFFECTS, SHARING, ENGINES),
    (
        Variable("namespace", "headrace_engine_info", "namespace"),
        Variable("service", "headrace_engine_info", "service"),
        Variable("pod", "headrace_engine_info", "pod", all=True),
    ),
)
