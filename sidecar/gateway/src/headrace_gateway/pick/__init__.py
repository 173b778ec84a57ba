"""The endpoint picker: answers Envoy's question, one per request, which engine the request goes to.

pick_server ──► picker ──► fleet (one per service) ──► its balancer
├─ tokens: how long the prompt is       └─ prefix_index: which engine holds its beginning
└─ prompt_reader ──► prompt_process: the same, for prompts that take long to read
"""
