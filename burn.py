import time; t=time.time()
while time.time()-t<40: pass
