"""What drivers share: step_driver, storage_threads, carry_through, line_limit, node_metrics."""
