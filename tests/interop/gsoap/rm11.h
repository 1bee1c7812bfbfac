// WS-RM 1.1 over WS-Addressing 1.0.
#import "wsrm.h"
#import "orders.h"
