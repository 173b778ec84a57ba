"""SAL against other balancers on simulated fleets: cases, page, study."""
