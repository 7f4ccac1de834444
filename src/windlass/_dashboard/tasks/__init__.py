"""What the screens of tasks need: the filter bar, exports, diagrams of states, tracebacks"""
