"""First words of a user's turn, by kind of task, that a model continues when it writes its own questions.

Without them a small model asks the same few kinds of question; with them its text covers what a chat model is
used for. The words after these are the model's own.
"""

from __future__ import annotations

OPENERS: dict[str, tuple[str, ...]] = {
    "any": ("",),
    "question": (
        "What is",
        "Why do",
        "How does",
        "How can I",
        "Explain",
        "What are the main",
        "Who was",
        "Where is",
        "When did",
        "Can you explain",
        "What is the difference between",
        "Tell me about",
        "What happens when",
        "Is it true that",
        "Describe how",
    ),
    "code": (
        "Write a Python function that",
        "Write a function to",
        "Write a program that",
        "How do I use Python to",
        "Explain what this code does:\n\n```python\ndef",
        "Fix the bug in this code:\n\n```python\n",
        "Write a SQL query that",
        "Write an HTML page",
        "Write a class in Python that",
        "Add comments to this code:\n\n```python\ndef",
    ),
    "rewrite": (
        "Rewrite this sentence so that it is more polite:",
        "Rewrite the following paragraph in simpler words:\n\n",
        "Correct the grammar of this text:\n\n",
        "Make this email shorter:\n\n",
        "Rewrite this text in a formal tone:\n\n",
        "Paraphrase:",
        "Rewrite the input text to make it more friendly and approachable.\n\n",
    ),
    "list": (
        "Give me a list of",
        "List five",
        "List ten",
        "Name three",
        "What are some",
        "Give me five ideas for",
        "Give me tips for",
        "Make a shopping list for",
        "Suggest some",
        "List the steps to",
    ),
    "summary": (
        "Summarize the following text:\n\n",
        "Summarize this article in one sentence:\n\n",
        "Give a short summary of",
        "What is the main idea of this passage?\n\n",
        "Provide a concise, objective summary of the input text in up to three sentences.\n\n",
    ),
    "writing": (
        "Write a short story about",
        "Write a poem about",
        "Write an email to",
        "Write a short paragraph about",
        "Write a letter",
        "Write a product description for",
        "Plan a trip to",
        "Help me write",
    ),
    "talk": ("Hi", "Hello,", "I am", "I want to", "I need help with", "Can you help me", "My friend", "Should I"),
}
