"""Beside vLLM: brings the plugin and the policy to the engine, and tells the rest of Headrace what it does.

    ConfigMap ─► handover, file_handover ─► control/ ─► engine
    engine ─► stats/ ─► monitor ─► /load, /status, /metrics ─► picker, operator, Prometheus

The engine never depends on this process: without it the engine keeps its last policy. And this process never
depends on the engine: absent, starting, hung, restarted or stock, each is an answer.
"""
