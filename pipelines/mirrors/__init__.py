"""One cluster's topics in another one, followed for as long as somebody wants.

mirror              the loop: what is new, copied and committed with how far it is
mirrored_topics     which topics, under which names; made and grown in the target
mirrored_groups     consumer groups' offsets, translated by offset_syncs
mirror_positions    how far a mirror is, in a topic of the target
"""
