"""What the program knows, told to people: one entry per rule, fix, bucket, fact and so on, as text (`explain`) and as pages (`reference`).

`kinds.KINDS` lists the kinds; each gives its ids and makes an `Entry` of one id. A new kind is one such function and one line there.
"""
