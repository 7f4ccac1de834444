"""HTML pages: templates, formats, and one bundle of scripts and styles. Knows nothing of tasks"""
