"""Two diagnoses become one comparison: may they be compared, what changed around the code, what moved, and is it more than noise."""
