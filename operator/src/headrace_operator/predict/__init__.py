"""`headrace predict`: what a load would come to that is only described, without traffic and without a GPU."""
