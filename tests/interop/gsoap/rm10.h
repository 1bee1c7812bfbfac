// WS-RM 1.0 over WS-Addressing 1.0 (see source.c for 2004/08).
#import "wsrm5.h"
#import "orders.h"
