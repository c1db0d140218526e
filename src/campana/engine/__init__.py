"""The engine: plan, claim, deliver, settle. Data flows one way, and every loop is a step that can be cranked by hand."""
