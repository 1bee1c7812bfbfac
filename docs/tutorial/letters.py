"""Look at the dead letters, and send them back."""

import wsrm_mq

with wsrm_mq.connect("shop.db") as node:
    letters = node.dead("orders")
    for letter in letters.peek():
        print(f"{letter.body.decode()}, after {letter.failures} failures: {letter.last_error}")
    print("sent back", letters.redrive())
