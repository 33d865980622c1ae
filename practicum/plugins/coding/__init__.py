"""Learning from the sessions of coding agents: Claude Code, Codex, opencode, Gemini CLI."""
