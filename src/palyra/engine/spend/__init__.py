"""Spend: planning a turn, reserving its cost, settling it (L9). Not: rules of budgets and routes (core)."""
