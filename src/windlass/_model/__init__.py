"""The nouns: frozen values that every layer speaks. They import nothing of ours and do nothing but be."""
